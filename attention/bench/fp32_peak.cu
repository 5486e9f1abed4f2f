#include <cstdint>

#include "attention/bench/fp32_peak.h"

namespace attnlab::bench {
namespace {

constexpr int kPairs = 16;  // of numbers per thread: enough that no multiply-add waits for another
constexpr int kThreads = 256;
constexpr int kBlocksOfAMultiprocessor = 4;
constexpr int kIterations = 1 << 13;
constexpr int kWarmUps = 50;

// Each pair oscillates, x += c y, y -= c x. The numbers stay in range, and all their bits keep
// changing, because a GPU's clock depends on the power that its data draws.
__global__ void __launch_bounds__(kThreads) SwingKernel(float c, float* out) {
  float x[kPairs], y[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    x[i] = 1 + 0.37f * static_cast<float>(i) + 0.01f * static_cast<float>(threadIdx.x);
    y[i] = 0.5f * x[i] - 3;
  }
#pragma unroll 8
  for (int n = 0; n < kIterations; ++n) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) x[i] = fmaf(c, y[i], x[i]);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) y[i] = fmaf(-c, x[i], y[i]);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) sum += x[i] + y[i];
  // Never true, but the compiler does not know.
  if (sum == 12345678) *out = sum;
}

// Owns a device's memory and events.
struct Resources {
  float* out = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  ~Resources() {
    cudaFree(out);
    if (start != nullptr) cudaEventDestroy(start);
    if (stop != nullptr) cudaEventDestroy(stop);
  }
};

#define RETURN_IF_ERROR(call)               \
  do {                                      \
    const cudaError_t error = (call);       \
    if (error != cudaSuccess) return error; \
  } while (false)

}  // namespace

cudaError_t MeasureFp32Peak(int repetitions, std::vector<double>* tflops) {
  int device = 0, multiprocessors = 0;
  RETURN_IF_ERROR(cudaGetDevice(&device));
  RETURN_IF_ERROR(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  Resources r;
  RETURN_IF_ERROR(cudaMalloc(&r.out, sizeof(float)));
  RETURN_IF_ERROR(cudaEventCreate(&r.start));
  RETURN_IF_ERROR(cudaEventCreate(&r.stop));
  const unsigned blocks = static_cast<unsigned>(multiprocessors * kBlocksOfAMultiprocessor);
  const double flops = 2.0 * 2 * kPairs * kIterations * kThreads * blocks;
  tflops->clear();
  for (int i = -kWarmUps; i < repetitions; ++i) {
    RETURN_IF_ERROR(cudaEventRecord(r.start));
    SwingKernel<<<blocks, kThreads>>>(0.7f, r.out);
    RETURN_IF_ERROR(cudaGetLastError());
    RETURN_IF_ERROR(cudaEventRecord(r.stop));
    RETURN_IF_ERROR(cudaEventSynchronize(r.stop));
    float milliseconds = 0;
    RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, r.start, r.stop));
    if (i >= 0) tflops->push_back(flops / (1e-3 * milliseconds) * 1e-12);
  }
  return cudaSuccess;
}

}  // namespace attnlab::bench
