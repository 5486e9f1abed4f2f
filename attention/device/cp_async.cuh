// Copies from global to shared memory that pass by the registers and go on while the thread does
// other work (cp.async, compute capability 8.0). Before it they are plain copies, done on return.
//
//   CopyAsync<16>(to, from, in_range); …; CopyAsyncCommit();  // a group
//   CopyAsyncWait<1>();                                       // all groups but the last are there
//   __syncthreads();                                          // those of other threads, too
#ifndef ATTENTION_DEVICE_CP_ASYNC_CUH_
#define ATTENTION_DEVICE_CP_ASYNC_CUH_

#include <cstdint>
#include <type_traits>

namespace attnlab::device {

// kBytes, 16 or 4, both aligned to as many. Zeros where not `valid`: `from` is not read then, but
// is an address all the same.
template <int kBytes>
__device__ void CopyAsync(void* to, const void* from, bool valid) {
  static_assert(kBytes == 16 || kBytes == 4);
#if __CUDA_ARCH__ >= 800
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    // Not through L1: what comes is used once here, from shared memory.
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(shared), "l"(from),
                 "r"(bytes)
                 : "memory");
  }
#else
  using Unit = std::conditional_t<kBytes == 16, uint4, uint32_t>;
  *static_cast<Unit*>(to) = valid ? *static_cast<const Unit*>(from) : Unit{};
#endif
}

// Of bytes that are there for sure: without the number, a register less.
template <int kBytes>
__device__ void CopyAsync(void* to, const void* from) {
  static_assert(kBytes == 16 || kBytes == 4);
#if __CUDA_ARCH__ >= 800
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4;" ::"r"(shared), "l"(from)
                 : "memory");
  }
#else
  using Unit = std::conditional_t<kBytes == 16, uint4, uint32_t>;
  *static_cast<Unit*>(to) = *static_cast<const Unit*>(from);
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
