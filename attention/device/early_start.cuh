// A kernel that may start before the one ahead of it in the stream has ended (LaunchRecord::early). Its
// blocks are there by then, and have computed their addresses: that saves about a microsecond.
//
// Both functions do nothing in code for capabilities below 9.0, which is not launched early.
#ifndef ATTENTION_DEVICE_EARLY_START_CUH_
#define ATTENTION_DEVICE_EARLY_START_CUH_

namespace attnlab::device {

// Until here a thread may read the kernel's parameters, and of other memory only what the kernel ahead does not
// write, if that one was not launched early itself. A thread that needs no other
// may end without it, but one of the kernel must call it: whoever waits for this kernel relies on the ones
// ahead of it having ended.
__device__ inline void WaitForKernelAhead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once all blocks have called this, or have ended, the next kernel starts if it is launched early.
__device__ inline void LetNextKernelStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_EARLY_START_CUH_
