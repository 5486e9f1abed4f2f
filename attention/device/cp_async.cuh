// Copies from global to shared memory that pass by the registers and go on while the thread does
// other work (cp.async, compute capability 8.0). Before it they are plain copies, done on return.
//
//   CopyAsync16(to, from, in_range); …; CopyAsyncCommit();    // a group
//   CopyAsyncWait<1>();                                       // all groups but the last are there
//   __syncthreads();                                          // those of other threads, too
#ifndef ATTENTION_DEVICE_CP_ASYNC_CUH_
#define ATTENTION_DEVICE_CP_ASYNC_CUH_

#include <cstdint>

namespace attnlab::device {

// 16 bytes; both aligned to 16. Zeros where not `valid`: `from` is not read then, but is an address
// all the same.
__device__ inline void CopyAsync16(void* to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = valid ? 16 : 0;
  // Not through L1: what comes is used once here, from shared memory.
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(bytes)
               : "memory");
#else
  const uint4 zeros = {0, 0, 0, 0};
  *static_cast<uint4*>(to) = valid ? *static_cast<const uint4*>(from) : zeros;
#endif
}

// Of 16 bytes that are there for sure.
__device__ inline void CopyAsync16(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(from)
               : "memory");
#else
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

// 4 bytes, both aligned to 4, with zeros likewise.
__device__ inline void CopyAsync4(void* to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(shared), "l"(from),
               "r"(bytes)
               : "memory");
#else
  *static_cast<uint32_t*>(to) = valid ? *static_cast<const uint32_t*>(from) : 0;
#endif
}
__device__ inline void CopyAsync4(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4;" ::"r"(shared), "l"(from)
               : "memory");
#else
  *static_cast<uint32_t*>(to) = *static_cast<const uint32_t*>(from);
#endif
}

// Makes a group of the copies that this thread has begun since the last.
__device__ inline void CopyAsyncCommit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for this thread's groups, but for the last `kPending`.
template <int kPending>
__device__ void CopyAsyncWait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CP_ASYNC_CUH_
