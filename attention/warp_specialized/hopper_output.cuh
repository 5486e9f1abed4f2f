// The last step of a query tile: rows of O from accumulators to global memory.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_

#include <cstdint>

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

// Stores the lane's two rows of O, times `factors`, as T at `to`. All lanes of the warp call it; a row that does not
// exist is not stored. A lane has two neighbouring columns of each 8; after an exchange with its neighbours it has 8,
// which it stores at once if all rows are whole_chunks (device/arguments.h). Then there are no branches, so exchanges of
// one chunk overlap those of others, and instructions that are executed lie together: this is run once per query tile,
// so they have to be fetched each time.
template <typename T, int kColumns>
__device__ void StoreRows(const device::wgmma::Accumulators<kColumns>& o, const float (&factors)[2],
                          uint16_t* const (&to)[2], const bool (&exists)[2], int dv,
                          bool whole_chunks) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
  // Elements 2 i and 2 i + 1 of the lane's r-th row.
  const auto word = [&](int r, int i) {
    return device::PackPair<T>(o.At(r, 2 * i) * factors[r], o.At(r, 2 * i + 1) * factors[r]);
  };
  if (!whole_chunks) {
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int column = 8 * i + 2 * pair;
        if (exists[r] && column < dv) to[r][column] = static_cast<uint16_t>(word(r, i));
        if (exists[r] && column + 1 < dv) {
          to[r][column + 1] = static_cast<uint16_t>(word(r, i) >> 16);
        }
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kColumns / 32; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t words[4] = {word(r, 4 * i), word(r, 4 * i + 1), word(r, 4 * i + 2),
                           word(r, 4 * i + 3)};
      TransposeWords(words);
      if (exists[r] && 32 * i + 8 * pair < dv) {
        reinterpret_cast<uint4*>(to[r])[4 * i + pair] =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_
