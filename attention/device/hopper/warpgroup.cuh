// What a warp-specialised kernel needs besides its barriers in shared memory: registers that change
// hands, warpgroups that take turns, and the fence between ordinary stores and wgmma or TMA.
//
// Needs sm_90a. Source: PTX ISA 9.0, "setmaxnreg", "barrier", "fence.proxy.async".
#ifndef ATTENTION_DEVICE_HOPPER_WARPGROUP_CUH_
#define ATTENTION_DEVICE_HOPPER_WARPGROUP_CUH_

#include <cuda/ptx>

namespace attnlab::device {

// Registers per thread from now on, a multiple of 8. All warps of the warpgroup call it. Take()
// waits until other warpgroups have given enough.
template <int kRegisters>
__device__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Whether the thread acts for its warp: true in one lane, the same in each call. Comparing the lane takes 50
// cycles if ptxas reads the special register for it.
__device__ inline bool IsElected() {
  int is;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.b32 %0, 1, 0, p;\n}"
               : "=r"(is)
               :
               : "memory");
  return is != 0;
}

// Named barrier `id`, 1 to 15: Sync() waits until `threads` threads have come, Arrive() does not
// wait. Barrier 0 is that of __syncthreads().
__device__ inline void NamedSync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void NamedArrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// This thread's stores to shared memory come before what wgmma and TMA read after the next barrier.
__device__ inline void FenceSharedStores() {
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_HOPPER_WARPGROUP_CUH_
