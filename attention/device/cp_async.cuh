// Copies from global to shared memory that bypass the registers and run while the thread does other
// work (cp.async, compute capability 8.0). Before 8.0 they are plain copies, complete on return.
//
//   CopyAsync<16>(to, from, in_range); …; CopyAsyncCommit();  // a group
//   CopyAsyncWait<1>();                                       // all but the last group arrived
//   __syncthreads();                                          // and those of other threads
#ifndef ATTENTION_DEVICE_CP_ASYNC_CUH_
#define ATTENTION_DEVICE_CP_ASYNC_CUH_

#include <cstdint>
#include <type_traits>

namespace attnlab::device {

// Copies kBytes, 16 or 4; both addresses are aligned to kBytes. If not `valid`, it writes zeros and
// does not read `from`, which must be a valid address all the same.
template <int kBytes>
__device__ void CopyAsync(void* to, const void* from, bool valid) {
  static_assert(kBytes == 16 || kBytes == 4);
#if __CUDA_ARCH__ >= 800
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    // Bypasses L1: the data is used once, from shared memory.
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

// The same for data that certainly exists. Without the byte count it takes one register less.
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

// Asks for the line of 128 bytes at `from`, so that later copies find it in L2.
__device__ inline void PrefetchLine(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Makes a group of the copies that this thread has begun since the last group.
__device__ inline void CopyAsyncCommit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for this thread's groups, except the last `kPending`.
template <int kPending>
__device__ void CopyAsyncWait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CP_ASYNC_CUH_
