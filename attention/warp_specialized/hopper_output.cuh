// The last step of a query tile: rows of O from accumulators to global memory.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_

#include <cstdint>

#include "attention/device/hopper/wgmma.cuh"
#include "attention/device/mma.cuh"

namespace attnlab::warp_specialized {

// For each two words whose numbers differ in kBit alone: of two lanes whose numbers differ in `lane_bit` alone, the
// lower one gets the other's first word in place of its second, which the other gets in place of its first.
template <int kBit>
__device__ void ExchangeWords(uint32_t (&words)[4], int lane_bit) {
  const bool high = threadIdx.x & lane_bit;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j & kBit) continue;
    uint32_t &first = words[j], &second = words[j + kBit];
    const uint32_t got = __shfl_xor_sync(0xFFFFFFFF, high ? first : second, lane_bit);
    (high ? first : second) = got;
  }
}

// Stores the lane's two rows of O, times `factors`, as T at `to`. All lanes of the warp call it; a row that does not
// exist is not stored. A lane has two neighbouring columns of each 8 or, if V was transposed, four of each 16
// (hopper_transpose.cuh). After an exchange with the row's other lanes it has 8, which it stores at once if all rows are
// whole_chunks (device/arguments.h). Then there are no branches, so exchanges of one chunk overlap those of others, and
// instructions that are executed lie together: this is run once per query tile, so they have to be fetched each time.
template <typename T, bool kTransposed, int kColumns>
__device__ void StoreRows(const device::wgmma::Accumulators<kColumns>& o, const float (&factors)[2],
                          uint16_t* const (&to)[2], const bool (&exists)[2], int dv,
                          bool whole_chunks) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
  // Elements 2 i and 2 i + 1 of the lane's r-th row, and the column of the first.
  const auto word = [&](int r, int i) {
    return device::PackPair<T>(o.At(r, 2 * i) * factors[r], o.At(r, 2 * i + 1) * factors[r]);
  };
  const auto column_of = [&](int i) {
    return kTransposed ? i / 2 * 16 + 4 * pair + i % 2 * 2 : 8 * i + 2 * pair;
  };
  if (!whole_chunks) {
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int column = column_of(i);
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
      int column = 32 * i;  // then that of the lane's first word
      if constexpr (kTransposed) {
        ExchangeWords<2>(words, 1);
        column += pair % 2 * 16 + pair / 2 * 8;
      } else {
        ExchangeWords<1>(words, 1), ExchangeWords<2>(words, 2);
        column += 8 * pair;
      }
      if (!exists[r] || column >= dv) continue;
      uint16_t* const place = to[r] + column;
      if constexpr (kTransposed) {
        // With an assignment, ptxas awaits P V earlier in the loop over tiles: 0.96 to 0.99 of the speed at head dim 128.
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(place), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
      } else {
        *reinterpret_cast<uint4*>(place) = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

// Writes the warp's 16 rows of O, times `factors`, as T to shared memory: blocks of 64 columns in the 128-byte swizzle,
// `bytes` apart. V was transposed.
template <typename T, int kColumns>
__device__ void WriteRows(const device::wgmma::Accumulators<kColumns>& o, const float (&factors)[2],
                          uint32_t to, int bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4, pair = lane % 4;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const uint32_t at =
        to + i / 4 * bytes + row * 128 + ((i % 4 * 2 + pair / 2) ^ row) * 16 + pair % 2 * 8;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t words[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        words[j] = device::PackPair<T>(o.At(r, 4 * i + 2 * j) * factors[r],
                                       o.At(r, 4 * i + 2 * j + 1) * factors[r]);
      }
      asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at + r * 8 * 128), "r"(words[0]),
                   "r"(words[1])
                   : "memory");
    }
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_OUTPUT_CUH_
