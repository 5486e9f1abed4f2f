// Products of fp32 numbers on tensor cores, from compute capability 8.0 on, which multiply TF32:
// numbers of fp32's range with 11 significant bits.
//
// An fp32 number x is the sum of a TF32 number, "big", and of what that leaves of it, "small", of
// which tensor cores take the first 11 bits. Of a product of two such sums three terms count,
//
//   x y = big(x) big(y) + big(x) small(y) + small(x) big(y) + …
//
// for the fourth is below 2^-22 of it. Terms are summed in fp32: that is 3xTF32, three products of
// TF32 for one that is nearly as good as fp32's.
//
// D += A B with A of 16 rows, B of 8 columns, k = 8. Lane l holds, with g = l / 4, t = l % 4:
//
//   accumulator  4 floats: rows g, g, g + 8, g + 8; columns 2 t, 2 t + 1, 2 t, 2 t + 1
//   A            4 numbers: (row g, k t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
//   B            2 numbers: (k t, column g), (k t + 4, column g)
//
// An accumulator is an A whose k are in another order: its columns 2 t and 2 t + 1 are k t and t
// + 4. A B that has its k in the same order makes up for it.
#ifndef ATTENTION_DEVICE_MMA_TF32_CUH_
#define ATTENTION_DEVICE_MMA_TF32_CUH_

#include <cstdint>

#include "attention/device/mma.cuh"

namespace attnlab::device {

// m16n8k8 of TF32. Tensor cores ignore the low 13 bits of factors.
__device__ inline void MmaTf32(AccumulatorFragment& d, const AFragment& a, const BFragment& b) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#else
  __trap();
#endif
}

// The two parts of an fp32 number, by bits. Big is rounded to nearest: with one instruction
// from 9.0 on, and by hand before, where cvt.rna takes four to keep NaN. Small keeps it: of what is
// not finite small is NaN, and so is every product. Small is exact, and cut by the tensor core.
// (Were big cut, all errors would have one sign, and sums would not average them out; small has
// either.)
__device__ inline void SplitTf32(uint32_t x, uint32_t& big, uint32_t& small) {
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(big) : "f"(__uint_as_float(x)));
#else
  big = (x + 0x1000u) & 0xFFFFE000u;
#endif
  small = __float_as_uint(__uint_as_float(x) - __uint_as_float(big));
}

// Fragments in two parts.
struct SplitA {
  AFragment big, small;
  __device__ void Set(int i, uint32_t x) { SplitTf32(x, big.x[i], small.x[i]); }
};
struct SplitB {
  BFragment big, small;
  __device__ void Set(int i, uint32_t x) { SplitTf32(x, big.x[i], small.x[i]); }
};

// D += A B for kM blocks of rows and kN of columns: big(m, n) is the accumulator of the terms
// big * big, and cross(m, n), which may be the same, that of the others. Each accumulator's
// products wait for each other, so those of all are taken in turn.
template <int kM, int kN, class Big, class Cross>
__device__ void MmaSplit(const SplitA (&a)[kM], const SplitB (&b)[kN], const Big& big,
                         const Cross& cross) {
#pragma unroll
  for (int i = 0; i < kM * kN; ++i) MmaTf32(cross(i % kM, i / kM), a[i % kM].small, b[i / kM].big);
#pragma unroll
  for (int i = 0; i < kM * kN; ++i) MmaTf32(cross(i % kM, i / kM), a[i % kM].big, b[i / kM].small);
#pragma unroll
  for (int i = 0; i < kM * kN; ++i) MmaTf32(big(i % kM, i / kM), a[i % kM].big, b[i / kM].big);
}

// Four numbers side by side from shared memory.
__device__ inline void LoadFourBits(uint32_t (&x)[4], uint32_t shared_address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address)
               : "memory");
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_MMA_TF32_CUH_
