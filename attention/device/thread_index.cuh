// The thread's index, for kernels with no register to spare.
#ifndef ATTENTION_DEVICE_THREAD_INDEX_CUH_
#define ATTENTION_DEVICE_THREAD_INDEX_CUH_

namespace attnlab::device {

// threadIdx.x, asked for where it is needed. What is computed from it in a loop stays there: before
// the loop it would cost registers all the way through.
__device__ inline int ThreadIndex() {
  int index;
  asm volatile("mov.u32 %0, %tid.x;" : "=r"(index));
  return index;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_THREAD_INDEX_CUH_
