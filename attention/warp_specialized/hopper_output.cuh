// The last step of a query tile: rows of O from accumulators to global memory.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "attention/device/convert.cuh"
#include "attention/device/hopper/wgmma.cuh"
#include "attention/device/mma.cuh"

namespace attnlab::warp_specialized {

// Among the four lanes of a row: word j of lane i becomes word i of lane j.
__device__ inline void TransposeWords(uint32_t (&words)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool high = threadIdx.x & bit;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & bit) continue;
      uint32_t &mine = words[j], &others = words[j + bit];
      const uint32_t got = __shfl_xor_sync(0xFFFFFFFF, high ? mine : others, bit);
      (high ? mine : others) = got;
    }
  }
}

// Two elements of O as a word, in 16 bits.
template <typename T>
struct Pairs {
  __device__ uint32_t Pack(float low, float high) const { return device::PackPair<T>(low, high); }
};
// Of fp8, the dtype of O is known at run time only.
template <>
struct Pairs<__nv_fp8_e4m3> {
  bool is_fp16;
  __device__ uint32_t Pack(float low, float high) const {
    const uint32_t half = device::PackPair<__half>(low, high),
                   bfloat = device::PackPair<__nv_bfloat16>(low, high);
    return is_fp16 ? half : bfloat;
  }
};

// Stores the lane's r-th row, times `factor`, at `to`. All lanes of the warp call it; those whose
// row does not `exist` store nothing. A lane has two neighbouring columns of each 8; after an
// exchange with its neighbours it has 8, which it stores at once if all rows are whole_chunks
// (device/arguments.h).
template <typename T, int kColumns>
__device__ void StoreRow(const device::wgmma::Accumulators<kColumns>& o, int r, float factor,
                         Pairs<T> pairs, uint16_t* to, bool exists, int dv, bool whole_chunks) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int c = 0; c < kColumns / 32; ++c) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[j] = pairs.Pack(o.At(r, 8 * c + 2 * j) * factor, o.At(r, 8 * c + 2 * j + 1) * factor);
    }
    TransposeWords(words);
    const int column = 32 * c + 8 * pair;
    if (!exists || column >= dv) continue;
    if (whole_chunks) {
      *reinterpret_cast<uint4*>(to + column) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (column + i < dv) to[column + i] = static_cast<uint16_t>(words[i / 2] >> i % 2 * 16);
      }
    }
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_
