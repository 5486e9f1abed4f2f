// A warp's fragments: their addresses in a swizzled tile in shared memory, and accumulators of
// whole rows in registers.
#ifndef ATTENTION_DEVICE_FRAGMENTS_CUH_
#define ATTENTION_DEVICE_FRAGMENTS_CUH_

#include <cstdint>

#include "attention/device/mma.cuh"
#include "attention/device/swizzle.h"

namespace attnlab::device {

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// The address of chunk 2 k + h of a row of kDim 16-bit elements, from the address of chunk h (0 or
// 1) of the same row. All chunks of a row are shifted alike (swizzle.h), so one XOR and a constant
// lead from one to the other.
template <int kDim>
__device__ uint32_t PairOfChunks(uint32_t first, int k) {
  constexpr int kGroup = Swizzle<kDim / 8>::kGroup;
  const int within = 2 * k % kGroup, before = 2 * k - within;
  return (first ^ static_cast<uint32_t>(within * kChunkBytes)) +
         static_cast<uint32_t>(before * kChunkBytes);
}

// Tells the compiler that all lanes have the same value, which then takes no register per lane.
__device__ inline int Uniform(int x) { return __shfl_sync(0xFFFFFFFF, x, 0); }

// Accumulators of kRows rows and kBlocks blocks of 8 columns, of S or of O.
template <int kRows, int kBlocks>
struct Accumulators {
  static constexpr int kRowBlocks = kRows / 16;
  AccumulatorFragment x[kRowBlocks][kBlocks];

  __device__ void Clear() {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) x[m][n] = {};
    }
  }

  // The i-th of the lane's 2 * kBlocks elements of its r-th row. It is in column i / 2 * 8 + lane %
  // 4 * 2 + i % 2.
  __device__ float& At(int r, int i) { return x[r / 2][i / 2].x[r % 2 * 2 + i % 2]; }
  __device__ float At(int r, int i) const { return x[r / 2][i / 2].x[r % 2 * 2 + i % 2]; }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_FRAGMENTS_CUH_
