#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "attention/cuda/launch.h"
#include "profiling/random_numbers.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;

// Mixes the bits of a counter (the finalizer of MurmurHash3).
__device__ uint32_t Mixed(uint64_t counter, uint32_t seed) {
  uint64_t x = counter + (uint64_t{seed} << 32);
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return static_cast<uint32_t>(x);
}

template <typename T>
__global__ void FillRandomNumbers(T* to, int64_t count, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    // 24 bits, all of which fit in a float's mantissa.
    to[i] = static_cast<T>(static_cast<float>(Mixed(i, seed) >> 8) * 0x1p-23f - 1);
  }
}

template <typename T>
cudaError_t Fill(void* to, int64_t count, uint32_t seed, cudaStream_t stream) {
  return device::Launch(FillRandomNumbers<T>, kBlocks, kThreads, 0, stream, static_cast<T*>(to),
                        count, seed);
}

}  // namespace

cudaError_t FillRandom(void* to, int64_t count, NumberType type, uint32_t seed,
                       cudaStream_t stream) {
  switch (type) {
    case NumberType::kFloat:
      return Fill<float>(to, count, seed, stream);
    case NumberType::kHalf:
      return Fill<__half>(to, count, seed, stream);
    case NumberType::kBFloat16:
      return Fill<__nv_bfloat16>(to, count, seed, stream);
    case NumberType::kFp8E4M3:
      return Fill<__nv_fp8_e4m3>(to, count, seed, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::profiling
