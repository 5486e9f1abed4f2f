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
#include "attention/device/online_softmax.h"

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

// The first `count` of 8 elements, then zeros.
__device__ inline uint4 LoadChunk(const uint16_t* from, int count, bool whole_chunks) {
  if (whole_chunks) {
    return count > 0 ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
  }
  uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) words[i / 2] |= uint32_t{from[i]} << i % 2 * 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Adds to the lane's r-th row, of this state, the row at `from` that has this LSE: StoreRow() backwards.
template <typename T, int kColumns>
__device__ void AddRow(device::wgmma::Accumulators<kColumns>& o, int r,
                       device::OnlineSoftmax& state, float lse, const uint16_t* from, bool exists,
                       int dv, bool whole_chunks) {
  device::OnlineSoftmax::MergeFactors factors;
  // So many loads start together.
  constexpr int kAhead = kColumns == 128 ? 4 : kColumns % 64 == 0 ? 2 : 3;
  const int first_column = static_cast<int>(threadIdx.x) % 4 * 8;
#pragma unroll
  for (int first = 0; first < kColumns / 32; first += kAhead) {
    uint4 chunks[kAhead];
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      const int column = 32 * (first + c) + first_column;
      chunks[c] = LoadChunk(from + column, exists ? dv - column : 0, whole_chunks);
    }
    if (first == 0) factors = state.Merge(device::OnlineSoftmax::OfLse(lse));
#pragma unroll
    for (int c = 0; c < kAhead; ++c) {
      uint32_t words[4] = {chunks[c].x, chunks[c].y, chunks[c].z, chunks[c].w};
      TransposeWords(words);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const T* const there = reinterpret_cast<const T*>(&words[j]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = o.At(r, 8 * (first + c) + 2 * j + i);
          x = fmaf(device::ToFloat(there[i]), factors.parts, x * factors.mine);
        }
      }
    }
  }
}

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
