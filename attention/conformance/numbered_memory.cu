#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/conformance/numbered_memory.h"
#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"

namespace attnlab::conformance {
namespace {

constexpr int kThreads = 256, kBlocks = 4096;

template <typename T>
__global__ void Fill(T* data, int64_t count, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    data[i] = device::FromFloat<T>(NumberAt(seed, i));
  }
}

template <typename Word>
__global__ void Count(const Word* data, int64_t count, unsigned long long* all_ones) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    mine += data[i] == static_cast<Word>(~Word{0}) ? 1 : 0;
  }
  if (mine > 0) atomicAdd(all_ones, mine);
}

template <typename T>
cudaError_t FillAs(void* data, int64_t count, uint64_t seed) {
  return device::Launch(Fill<T>, kBlocks, kThreads, 0, nullptr, static_cast<T*>(data), count, seed);
}

}  // namespace

cudaError_t FillWithNumbers(void* data, device::Element element, int64_t count, uint64_t seed) {
  switch (element) {
    case device::Element::kFloat32:
      return FillAs<float>(data, count, seed);
    case device::Element::kFloat16:
      return FillAs<__half>(data, count, seed);
    case device::Element::kBFloat16:
      return FillAs<__nv_bfloat16>(data, count, seed);
  }
  return cudaErrorInvalidValue;
}

cudaError_t CountAllOnes(const void* data, device::Element element, int64_t count,
                         int64_t* all_ones) {
  unsigned long long* sum = nullptr;
  cudaError_t error = cudaMalloc(&sum, sizeof(*sum));
  if (error != cudaSuccess) return error;
  error = cudaMemset(sum, 0, sizeof(*sum));
  if (error == cudaSuccess) {
    error = element == device::Element::kFloat32
                ? device::Launch(Count<uint32_t>, kBlocks, kThreads, 0, nullptr,
                                 static_cast<const uint32_t*>(data), count, sum)
                : device::Launch(Count<uint16_t>, kBlocks, kThreads, 0, nullptr,
                                 static_cast<const uint16_t*>(data), count, sum);
  }
  unsigned long long result = 0;
  if (error == cudaSuccess) {
    error = cudaMemcpy(&result, sum, sizeof(result), cudaMemcpyDeviceToHost);
  }
  *all_ones = static_cast<int64_t>(result);
  const cudaError_t freed = cudaFree(sum);
  return error == cudaSuccess ? freed : error;
}

}  // namespace attnlab::conformance
