// Matrix products of a warp on tensor cores, and the loads and stores of their fragments: one
// instruction each.
//
// D += A B with A of 16 rows, B of 8 columns, 32 threads. Lane l holds, with g = l / 4, t = l % 4:
//
//   accumulator  4 floats: rows g, g, g + 8, g + 8; columns 2 t, 2 t + 1, 2 t, 2 t + 1
//   A, 16 bit    4 registers of two: (row g, k 2 t), (g + 8, 2 t), (g, 2 t + 8), (g + 8, 2 t + 8)
//   B, 16 bit    2 registers of two: (k 2 t, column g), (k 2 t + 8, column g)
//
// An accumulator whose pairs are rounded to 16 bits is half of an A. That is how P goes from the
// first product to the second without leaving the registers.
#ifndef ATTENTION_DEVICE_MMA_CUH_
#define ATTENTION_DEVICE_MMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace attnlab::device {

struct AccumulatorFragment {
  float x[4];
};
struct AFragment {
  uint32_t x[4];
};
struct BFragment {
  uint32_t x[2];
};

// m16n8k16 for T = __half or __nv_bfloat16. Before 8.0, __half takes two products with k = 8.
// Tensor cores there do not support bf16, and no kernel asks for it.
template <typename T>
__device__ void Mma(AccumulatorFragment& d, const AFragment& a, const BFragment& b);

template <>
__device__ inline void Mma<__half>(AccumulatorFragment& d, const AFragment& a, const BFragment& b) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#else
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
        : "r"(a.x[2 * k]), "r"(a.x[2 * k + 1]), "r"(b.x[k]));
  }
#endif
}

template <>
__device__ inline void Mma<__nv_bfloat16>(AccumulatorFragment& d, const AFragment& a,
                                          const BFragment& b) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
#else
  __trap();
#endif
}

// Packs two floats, rounded to nearest, the first in the lower half.
template <typename T>
__device__ uint32_t PackPair(float low, float high);
template <>
__device__ inline uint32_t PackPair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ inline uint32_t PackPair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Packs two or four floats as fp8_e4m3, rounded to nearest, the first in the lowest byte. What is too large
// becomes the largest number.
__device__ inline uint32_t PackFp8(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

__device__ inline uint32_t PackFp8(float a, float b, float c, float d) {
  return PackFp8(a, b) | PackFp8(c, d) << 16;
}

// The inverse.
__device__ inline float4 UnpackFp8(uint32_t word) {
  const __half2 low = __nv_cvt_fp8x2_to_halfraw2(word & 0xFFFF, __NV_E4M3),
                high = __nv_cvt_fp8x2_to_halfraw2(word >> 16, __NV_E4M3);
  return make_float4(__low2float(low), __high2float(low), __low2float(high), __high2float(high));
}

__device__ inline uint32_t LoadShared(uint32_t shared_address) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(shared_address));
  return word;
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lanes 0-7, 8-15, 16-23 and 24-31
// point at the 16-byte rows of one matrix each. In lane l, x[i] is row l / 4 and columns 2 (l % 4)
// and 2 (l % 4) + 1 of matrix i.
__device__ inline void LoadMatrices(uint32_t (&x)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address));
}

// The same, with each matrix transposed.
__device__ inline void LoadMatricesTransposed(uint32_t (&x)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address));
}

// The inverse: stores matrix i from x[i] to the rows that the lanes point at.
__device__ inline void StoreMatrices(uint32_t shared_address, const uint32_t (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
      : "memory");
#else
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t row = __shfl_sync(0xFFFFFFFF, shared_address, 8 * i + lane / 4);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(row + lane % 4 * 4), "r"(x[i]) : "memory");
  }
#endif
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_MMA_CUH_
