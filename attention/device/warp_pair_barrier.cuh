// A barrier of two warps that stand next to each other in their block.
#ifndef ATTENTION_DEVICE_WARP_PAIR_BARRIER_CUH_
#define ATTENTION_DEVICE_WARP_PAIR_BARRIER_CUH_

#include "attention/device/thread_index.cuh"

namespace attnlab::device {

// As __syncthreads(), for warps 2 i and 2 i + 1 of a block of at most 30. Uses the named barriers
// from 1 on.
__device__ inline void WaitForPairOfWarps() {
  asm volatile("barrier.cta.sync %0, 64;" ::"r"(1 + ThreadIndex() / 64) : "memory");
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_WARP_PAIR_BARRIER_CUH_
