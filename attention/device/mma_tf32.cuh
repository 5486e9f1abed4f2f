// fp32 products on tensor cores, from compute capability 8.0 on. Tensor cores multiply TF32:
// numbers with fp32's range and 11 significant bits.
//
// An fp32 number x is the sum of a TF32 number, "big", and the remainder, "small". Tensor cores use
// the first 11 bits of small. A product of two such sums has three terms that count,
//
//   x y = big(x) big(y) + big(x) small(y) + small(x) big(y) + …
//
// because the fourth is below 2^-22 of the product. Terms are summed in fp32. That is 3xTF32: three
// TF32 products for one product that is nearly as precise as fp32's.
//
// D += A B with A of 16 rows, B of 8 columns, k = 8. Lane l holds, with g = l / 4, t = l % 4:
//
//   accumulator  4 floats: rows g, g, g + 8, g + 8; columns 2 t, 2 t + 1, 2 t, 2 t + 1
//   A            4 numbers: (row g, k t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
//   B            2 numbers: (k t, column g), (k t + 4, column g)
//
// An accumulator is an A with its k in another order: its columns 2 t and 2 t + 1 are k t and t +
// 4. The B that it is multiplied with must have its k in the same order.
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

// Splits the bits of an fp32 number into its two parts. Big is rounded to nearest. That takes one
// instruction from 9.0 on; before, it is done by hand, because cvt.rna takes four instructions to
// keep NaN. If x is not finite, small is NaN, and so is every product. Small is exact here, and the
// tensor core truncates it. (If big were truncated, all errors would have the same sign, and sums
// would not average them out. Small has either sign.)
__device__ inline void SplitTf32(uint32_t x, uint32_t& big, uint32_t& small) {
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(big) : "f"(__uint_as_float(x)));
#else
  big = (x + 0x1000u) & 0xFFFFE000u;
#endif
  small = __float_as_uint(__uint_as_float(x) - __uint_as_float(big));
}

// Fragments split into their two parts.
struct SplitA {
  AFragment big, small;
  __device__ void Set(int i, uint32_t x) { SplitTf32(x, big.x[i], small.x[i]); }
};
struct SplitB {
  BFragment big, small;
  __device__ void Set(int i, uint32_t x) { SplitTf32(x, big.x[i], small.x[i]); }
};

// D += A B for kM blocks of rows and kN blocks of columns. big(m, n) is the accumulator of the
// terms big * big. cross(m, n) is that of the other terms, and may be the same one. Products of one
// accumulator wait for each other, so the loops alternate between accumulators.
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

// Loads four adjacent numbers from shared memory.
__device__ inline void LoadFourBits(uint32_t (&x)[4], uint32_t shared_address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address)
               : "memory");
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_MMA_TF32_CUH_
