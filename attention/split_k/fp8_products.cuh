// The two products of a warp where K and V are fp8_e4m3: they are turned into fp16, exactly, between
// shared memory and the tensor cores, and Q is fp16, too.
//
// A 32-bit word of a tile is four dims of a key. mma.sync does not care in which order it sums dims,
// as long as Q has them in the same order. So a lane's word of K is two registers of its fragment:
// of each 16 dims, lane t of four has dims 4 t to 4 t + 3. V is transposed by pairs of bytes; of the
// two keys in a register, the bytes of an even dim make one column and those of the odd dim another.
// So of each 16 columns of O, lane t has columns 4 t to 4 t + 3.
#ifndef ATTENTION_SPLIT_K_FP8_PRODUCTS_CUH_
#define ATTENTION_SPLIT_K_FP8_PRODUCTS_CUH_

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "attention/device/convert.cuh"
#include "attention/device/fragment_products.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/mma.cuh"
#include "attention/device/swizzle.h"

namespace attnlab::split_k {

// Two numbers of fp8_e4m3 as fp16.
__device__ inline uint32_t HalvesOf(uint32_t pair) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return static_cast<uint32_t>(halves.x) | static_cast<uint32_t>(halves.y) << 16;
}

template <class Shape>
class Fp8Products {
  static constexpr int kDim = Shape::kHeadDim, kRows = Shape::kWarpRows;

 public:
  using OfHalves = device::FragmentProducts<Shape, __half>;
  using Scores = typename OfHalves::Scores;
  using Output = typename OfHalves::Output;
  using Probabilities = typename OfHalves::Probabilities;
  struct KeptQ {
    device::AFragment x[kDim / 16];
  };

  // Keeps rows `quad` and `quad` + 8 of the `count` rows of Q, which lie at `rows` as elements of T; of 8 rows or
  // fewer, zeros for the second one. Those of bf16 may be too large for fp16, so each row is divided by a power of
  // two, which is its factor. Short code, because it runs once.
  template <typename T>
  static __device__ void KeepQ(const char* rows, int count, int quad, int pair, KeptQ& q,
                               float (&factors)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = 1;
      if (r > 0 && count <= 8) {
#pragma unroll
        for (int k = 0; k < kDim / 16; ++k) q.x[k].x[1] = q.x[k].x[3] = 0;
        continue;
      }
      // The largest magnitude in each half: bf16 without its sign orders like its bits.
      uint32_t largest = 0;
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) {
        const int at = device::Swizzle<kDim / 8>::At(quad + 8 * r, 2 * k + pair / 2);
        const uint2 words =
            *reinterpret_cast<const uint2*>(rows + at * device::kChunkBytes + pair % 2 * 8);
        q.x[k].x[r] = words.x, q.x[k].x[2 + r] = words.y;
        largest = __vmaxu2(largest, words.x & 0x7FFF7FFF);
        largest = __vmaxu2(largest, words.y & 0x7FFF7FFF);
      }
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        largest = max(largest & 0xFFFF, largest >> 16);
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 1));
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, 2));
        // The row's largest number is from 2^7 to 2^8 then. The limits are for numbers whose inverse would overflow,
        // for infinity, and for a row of zeros.
        constexpr int kBias = 127, kBits = 23;  // of fp32; bf16 has the upper half
        const int exponent =
            max(-100, min(120, static_cast<int>(largest >> (kBits - 16)) - kBias - 7));
        factors[r] = __int_as_float((kBias + exponent) << kBits);
        const float inverse = __int_as_float((kBias - exponent) << kBits);
#pragma unroll
        for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
          for (int i = r; i < 4; i += 2) {
            uint32_t& word = q.x[k].x[i];
            const float2 pair = device::UnpackPair<T>(word);
            word = device::PackPair<__half>(pair.x * inverse, pair.y * inverse);
          }
        }
      }
    }
  }

  // S = Q Kᵀ. `k_address`: of the chunk that the lane points at for ldmatrix, of PointedRow() and PointedChunk().
  static __device__ void MultiplyQk(uint32_t k_address, const KeptQ& q, Scores& s) {
    s.Clear();
#pragma unroll
    for (int k = 0; k < kDim / 32; ++k) {
      uint32_t words[4];  // keys 0 - 7, keys 8 - 15; the same of the next 16 dims
      device::LoadMatrices(words, device::PairOfChunks<kDim / 2>(k_address, k));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        device::Mma<__half>(s.x[0][i % 2], q.x[2 * k + i / 2],
                            {HalvesOf(words[i]), HalvesOf(words[i] >> 16)});
      }
    }
  }

  // O += P V.
  static __device__ void AddPv(uint32_t v_address, const Probabilities& p, Output& o) {
#pragma unroll
    for (int n = 0; n < kDim / 32; ++n) {
      uint32_t words[4];  // keys 0 - 7, keys 8 - 15; the same of the next 16 columns
      device::LoadMatricesTransposed(words, device::PairOfChunks<kDim / 2>(v_address, n));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // Bytes 0 and 2, then 1 and 3.
        const uint32_t low = __byte_perm(words[2 * i], 0, 0x3120);
        const uint32_t high = __byte_perm(words[2 * i + 1], 0, 0x3120);
        const int block = 2 * (2 * n + i);
        device::Mma<__half>(o.x[0][block], p.x[0][0], {HalvesOf(low), HalvesOf(high)});
        device::Mma<__half>(o.x[0][block + 1], p.x[0][0],
                            {HalvesOf(low >> 16), HalvesOf(high >> 16)});
      }
    }
  }

  // The row of a tile of K or V and its chunk that a lane points at.
  static __device__ int PointedRow(int lane) { return lane % 8 + lane / 8 % 2 * 8; }
  static __device__ int PointedChunk(int lane) { return lane / 16; }
};

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_FP8_PRODUCTS_CUH_
