// The thread's index, for kernels with no register to spare.
#ifndef ATTENTION_DEVICE_THREAD_INDEX_CUH_
#define ATTENTION_DEVICE_THREAD_INDEX_CUH_

namespace attnlab::device {

// threadIdx.x, read where it is needed. The compiler keeps what is computed from it inside the loop
// that uses it. Hoisted out of the loop, it would cost registers throughout.
__device__ inline int ThreadIndex() {
  int index;
  asm volatile("mov.u32 %0, %tid.x;" : "=r"(index));
  return index;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_THREAD_INDEX_CUH_
