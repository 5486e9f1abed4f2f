// Barriers for neighbouring warps of a block.
#ifndef ATTENTION_DEVICE_WARP_BARRIERS_CUH_
#define ATTENTION_DEVICE_WARP_BARRIERS_CUH_

#include <cstdint>

#include "attention/device/thread_index.cuh"

namespace attnlab::device {

// Like __syncthreads(), for warps 2 i and 2 i + 1 of a block of at most 30 warps. Uses the named
// barriers from 1 on.
__device__ inline void WaitForPairOfWarps() {
  asm volatile("barrier.cta.sync %0, 64;" ::"r"(1 + ThreadIndex() / 64) : "memory");
}

// The same. Returns whether `vote` is true for any thread of the two warps.
__device__ inline bool WaitForPairOfWarpsAndVote(bool vote) {
  uint32_t any;
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.u32 p, %2, 0;\n"
      "barrier.cta.red.or.pred p, %1, 64, p;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(any)
      : "r"(1 + ThreadIndex() / 64), "r"(static_cast<uint32_t>(vote))
      : "memory");
  return any != 0;
}

// WaitForPairOfWarps() for every kWarps neighbouring warps of a block of kBlockWarps. Uses the named barriers
// after those of the pairs.
template <int kWarps, int kBlockWarps>
__device__ void WaitForWarps() {
  static_assert(kBlockWarps % kWarps == 0 && 1 + kBlockWarps / 2 + kBlockWarps / kWarps <= 16);
  asm volatile(
      "barrier.cta.sync %0, %1;" ::"r"(1 + kBlockWarps / 2 + ThreadIndex() / (32 * kWarps)),
      "n"(32 * kWarps)
      : "memory");
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_WARP_BARRIERS_CUH_
