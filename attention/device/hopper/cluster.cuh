// A cluster of blocks: its barrier, and stores to the shared memory of its other blocks.
//
// Needs 9.0. Source: PTX ISA 9.0, "barrier.cluster", "mapa", "st.async".
#ifndef ATTENTION_DEVICE_HOPPER_CLUSTER_CUH_
#define ATTENTION_DEVICE_HOPPER_CLUSTER_CUH_

#include <cstdint>

namespace attnlab::device {

// Together a barrier of all threads of the cluster, for mbarriers that they have initialised before. It
// orders nothing else: a barrier that does waits for a fence of the whole GPU.
__device__ inline void ClusterArrive() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
// The same, after all that this thread has done, arrivals at mbarriers of other blocks among it. A fence: for the
// end of a kernel.
__device__ inline void ClusterArriveAfterAll() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ inline void ClusterWait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

// Of this block in its cluster.
__device__ inline uint32_t BlockOfCluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The same place in the shared memory of another block. Addresses are those of SharedAddress().
__device__ inline uint32_t InBlock(uint32_t address, uint32_t block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

// Stores to another block, which learns of the bytes from its mbarrier at `barrier`. `to` is aligned to
// what is stored.
__device__ inline void StoreAsync(uint32_t to, float2 x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
      :
      : "r"(to), "f"(x.x), "f"(x.y), "r"(barrier)
      : "memory");
}
__device__ inline void StoreAsync(uint32_t to, float4 x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];"
      :
      : "r"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_HOPPER_CLUSTER_CUH_
