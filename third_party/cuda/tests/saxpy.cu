#include <cuda_runtime.h>

#include "third_party/cuda/tests/saxpy.h"

namespace attnlab::cuda_rules_test {
namespace {

__global__ void SaxpyKernel(int64_t n, float a, const float* x, float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void ArchKernel(int* arch) {
#ifdef __CUDA_ARCH__
  *arch = __CUDA_ARCH__;
#endif
}

// Frees its memory when a later call fails.
struct DeviceBuffer {
  void* data = nullptr;
  ~DeviceBuffer() { cudaFree(data); }
};

}  // namespace

int Saxpy(int64_t n, float a, const float* x, float* y) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  DeviceBuffer dx;
  DeviceBuffer dy;
  if (cudaError_t e = cudaMalloc(&dx.data, bytes)) return e;
  if (cudaError_t e = cudaMalloc(&dy.data, bytes)) return e;
  if (cudaError_t e = cudaMemcpy(dx.data, x, bytes, cudaMemcpyHostToDevice)) return e;
  if (cudaError_t e = cudaMemcpy(dy.data, y, bytes, cudaMemcpyHostToDevice)) return e;
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  SaxpyKernel<<<blocks, kThreads>>>(n, a, static_cast<const float*>(dx.data),
                                    static_cast<float*>(dy.data));
  if (cudaError_t e = cudaGetLastError()) return e;
  return cudaMemcpy(y, dy.data, bytes, cudaMemcpyDeviceToHost);
}

int RunningArch() {
  DeviceBuffer buffer;
  if (cudaError_t e = cudaMalloc(&buffer.data, sizeof(int))) return -e;
  ArchKernel<<<1, 1>>>(static_cast<int*>(buffer.data));
  if (cudaError_t e = cudaGetLastError()) return -e;
  int arch = 0;
  if (cudaError_t e = cudaMemcpy(&arch, buffer.data, sizeof(int), cudaMemcpyDeviceToHost)) {
    return -e;
  }
  return arch;
}

}  // namespace attnlab::cuda_rules_test
