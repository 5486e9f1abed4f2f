// Where the fragments of a product lie in a swizzled tile, and the small arithmetic of tiles.
#ifndef ATTENTION_FA2_FRAGMENTS_CUH_
#define ATTENTION_FA2_FRAGMENTS_CUH_

#include <cstdint>

#include "attention/device/swizzle.h"

namespace attnlab::fa2 {

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Of a row of kDim 16-bit elements the address of chunk 2 k + h, from that of chunk h, 0 or 1, of
// the same row: all chunks of a row are shifted alike (swizzle.h), so that one exclusive-or and a
// constant lead from the one to the other.
template <int kDim>
__device__ uint32_t PairOfChunks(uint32_t first, int k) {
  constexpr int kGroup = device::Swizzle<kDim / 8>::kGroup;
  const int within = 2 * k % kGroup, before = 2 * k - within;
  return (first ^ static_cast<uint32_t>(within * device::kChunkBytes)) +
         static_cast<uint32_t>(before * device::kChunkBytes);
}

// Tells the compiler that all lanes have the same value, which then takes no register of each.
__device__ inline int Uniform(int x) { return __shfl_sync(0xFFFFFFFF, x, 0); }

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_FRAGMENTS_CUH_
