// wgmma: Hopper's matrix product of a warpgroup (4 warps), D += A B, for factors of 16 or 8 bits and
// fp32 accumulators. Sums of fp8 keep about 14 bits, so they should be short.
//
// D has 64 rows and N columns, A 64 rows and 32 bytes of columns, B as many rows and N columns. Below,
// that is 16 columns and rows; of fp8 it is 32. Warp w of the group
// has rows 16 w to 16 w + 15 of D, in the layout of mma.sync. B lies in shared memory; A lies there
// or in registers. A sum over more than 32 bytes takes several products, one per step k:
//
//   wgmma::Fence();
//   for (k) wgmma::MultiplyRows<T>(s, q.Step(k), keys.Step(k), k > 0);      // S = Q Kᵀ
//   wgmma::Commit();
//   …                                                                      // other work
//   wgmma::Wait<0>();
//   wgmma::Keep(s.x);
//
// The product is asynchronous: between Fence() and Wait() nobody else may touch the registers of D
// and A. The compiler does not know that, and Keep() keeps it from moving computations with them.
//
// Needs sm_90a. Source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
#ifndef ATTENTION_DEVICE_HOPPER_WGMMA_CUH_
#define ATTENTION_DEVICE_HOPPER_WGMMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "attention/device/hopper/wgmma_asm.cuh"

namespace attnlab::device::wgmma {

// Orders earlier accesses to registers and shared memory before the products that follow.
__device__ inline void Fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Makes the products since the last Commit() a group.
__device__ inline void Commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most kGroups groups are unfinished.
template <int kGroups>
__device__ void Wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// No computation with these registers moves past this place.
__device__ inline void Keep(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
template <int kCount>
__device__ void Keep(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int kCount>
__device__ void Keep(uint32_t (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

// A thread's part of D.
template <int kColumns>
struct Accumulators {
  float x[kColumns / 2];

  // The i-th of the lane's kColumns / 4 elements of its r-th row: column i / 2 * 8 + lane % 4 * 2 +
  // i % 2 of the warp's row r * 8 + lane / 4.
  __device__ float& At(int r, int i) { return x[i / 2 * 4 + r * 2 + i % 2]; }
  __device__ float At(int r, int i) const { return x[i / 2 * 4 + r * 2 + i % 2]; }
};

// A matrix in shared memory, as TMA writes it: blocks of 128 bytes of each row, one after the other. A block
// is in the 128-byte swizzle. It begins at a multiple of 1024 bytes and has
// a multiple of 8 rows.
//
// A descriptor has, in units of 16 bytes: the address in bits 0 to 13, the distance of blocks in
// bits 16 to 29, and that of groups of 8 rows in bits 32 to 45. Bit 62 is the 128-byte swizzle.

// Q and K in Q Kᵀ: sums run along rows.
class SumAlongRows {
 public:
  __device__ SumAlongRows(uint32_t address, int rows)
      : first_(uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16 |
               (address & 0x3FFFF) >> 4),
        block_(rows * 8) {}
  // The descriptor of bytes 32 k to 32 k + 31 of each row.
  __device__ uint64_t Step(int k) const {
    return first_ + static_cast<uint32_t>(k / 4 * block_ + k % 4 * 2);
  }

 private:
  uint64_t first_;
  int block_;
};

// V in P V: sums run along columns.
class SumAlongColumns {
 public:
  __device__ SumAlongColumns(uint32_t address, int rows)
      : first_(uint64_t{1} << 62 | uint64_t{64} << 32 | static_cast<uint64_t>(rows * 8) << 16 |
               (address & 0x3FFFF) >> 4) {}
  // The descriptor of rows 16 k to 16 k + 15.
  __device__ uint64_t Step(int k) const { return first_ + static_cast<uint32_t>(k * 128); }

 private:
  uint64_t first_;
};

// D (+)= A B, with descriptors of SumAlongRows. D = A B unless `accumulate`.
template <typename T, int kColumns>
__device__ void MultiplyRows(Accumulators<kColumns>& d, uint64_t a, uint64_t b, bool accumulate) {
  const int add = accumulate;
  float(&x)[kColumns / 2] = d.x;
  ATTNLAB_WGMMA_DISPATCH(ATTNLAB_WGMMA_SHARED, ", 0, 0")
}

// The same with A in registers, as a fragment of mma.sync m16n8k16 or, of fp8, m16n8k32. T is the type of B, and
// of A, which is fp8_e4m3 if B is fp8_e5m2.
template <typename T, int kColumns>
__device__ void MultiplyRows(Accumulators<kColumns>& d, const uint32_t (&a)[4], uint64_t b,
                             bool accumulate) {
  const int add = accumulate;
  float(&x)[kColumns / 2] = d.x;
  ATTNLAB_WGMMA_DISPATCH(ATTNLAB_WGMMA_REGISTERS, ", 0")
}

// The same with A in registers and a descriptor of SumAlongColumns.
template <typename T, int kColumns>
__device__ void MultiplyColumns(Accumulators<kColumns>& d, const uint32_t (&a)[4], uint64_t b,
                                bool accumulate) {
  static_assert(sizeof(T) == 2, "sums of fp8 run along rows");
  const int add = accumulate;
  float(&x)[kColumns / 2] = d.x;
  ATTNLAB_WGMMA_DISPATCH(ATTNLAB_WGMMA_REGISTERS, ", 1")
}

}  // namespace attnlab::device::wgmma

#endif  // ATTENTION_DEVICE_HOPPER_WGMMA_CUH_
