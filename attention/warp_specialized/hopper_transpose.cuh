// V of fp8, transposed in shared memory. wgmma wants both factors of fp8 with sums along rows, but V comes
// with sums along columns.
//
// A warp takes 32 keys and 16 columns at a time. ldmatrix.trans moves pairs of columns, as 16-bit elements:
//
//   as copied                    after ldmatrix.trans, in lane (column pair c, key pair k)
//   key 0      | 0 1 | 2 3 |     x0: key 2k: 2c 2c+1, key 2k + 1: 2c 2c+1     of keys 0 to 7
//   key 1      | 0 1 | 2 3 |     x1: the same of keys 8 to 15
//
// Two byte permutations of x0 and x1 give 4 keys of column 2c, and 4 of column 2c + 1, which stmatrix
// stores. The keys of a row of the transposed tile are then in another order: of each 16, place 4k + j is
//
//   j = 0, 1: key 2k + j        j = 2, 3: key 8 + 2k + j - 2
//
// That is the order in which a lane has its scores. P needs it: of the product's A, lane k of a row has
// places 4k to 4k + 3, and of the scores it has keys 2k, 2k + 1, 8 + 2k, 8 + 2k + 1. So P is rounded where
// it lies (hopper_sum.cuh).
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_TRANSPOSE_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_TRANSPOSE_CUH_

#include <cstdint>

#include "attention/device/fragments.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/device/hopper/warpgroup.cuh"
#include "attention/device/mma.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_tile.cuh"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

// 16 columns of a tile. `from`, `to`: the lane's row of the first 32 keys. kAll: whether all keys count.
// Others may be NaN, and become 0: the first `keys` count.
template <typename Shape, bool kAll>
__device__ void TransposeColumns(uint32_t from, uint32_t to, int keys) {
  constexpr int kBlocks = Shape::kKeys / 32, kAtOnce = Shape::kProducerRegisters < 32 ? 2 : 4;
  const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int first = 0; first < kBlocks; first += kAtOnce) {
    const int count = kBlocks - first < kAtOnce ? kBlocks - first : kAtOnce;
    uint32_t x[kAtOnce][4];
#pragma unroll
    for (int n = 0; n < count; ++n) {
      device::LoadMatricesTransposed(x[n], from + (first + n) * 32 * 128);
    }
#pragma unroll
    for (int n = 0; n < count; ++n) {
      if constexpr (!kAll) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = 32 * (first + n) + 8 * i + pair * 2;
          if (key >= keys) x[n][i] &= 0xFFFF0000;
          if (key + 1 >= keys) x[n][i] &= 0x0000FFFF;
        }
      }
      uint32_t y[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        y[2 * i] = __byte_perm(x[n][2 * i], x[n][2 * i + 1], 0x6420);
        y[2 * i + 1] = __byte_perm(x[n][2 * i], x[n][2 * i + 1], 0x7531);
      }
      // 128 keys are a block of the tile, in which 32 keys are two chunks of 16 bytes, whose place the
      // swizzle exchanges by exclusive or.
      device::StoreMatrices(to + first / 4 * Shape::kDimV * 128 ^ n * 32, y);
    }
  }
}

// One of Shape::kTransposers warps. Each has every other block of columns.
template <typename Shape>
__device__ void Transpose(const HopperArguments& h, HopperShared<Shape>& shared, int warp) {
  constexpr int kKeys = Shape::kKeys;
  typename device::Ring<Shape::kWorks>::Place work_at;
  typename device::Ring<Shape::kCopiedStages>::Place from_at;
  typename device::Ring<Shape::kStages>::Place to_at;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // The row that the lane points stmatrix at, of each 16 columns: matrices 0 and 2 have the even ones,
  // and matrices 0 and 1 the first half of the keys.
  const int column = lane % 8 * 2 + lane / 8 % 2, half = lane / 16;
  for (;; work_at.Advance()) {
    shared.work_ring.WaitFull(work_at);
    const int tiles = shared.work[work_at.stage].tiles, keys = shared.work[work_at.stage].keys;
    __syncwarp();
    if (tiles == Work::kNoMore) return;
    if (lane == 0) shared.work_ring.Release(work_at);
    for (int i = tiles - 1; i >= 0; --i) {
      shared.copied_v_ring.WaitFull(from_at);
      shared.v_ring.WaitEmpty(to_at);
      const uint32_t from = device::SharedAddress(shared.copied_v[from_at.stage]) + lane * 128,
                     to = device::SharedAddress(shared.v[to_at.stage]) + column * 128 +
                          (half ^ column % 8) * 16;
      const int exist = h.rows_beyond ? keys - i * kKeys : kKeys;
#pragma unroll 1
      for (int c = warp; c < Shape::kDimV / 16; c += Shape::kTransposers) {
        const uint32_t block = from + c / 8 * kKeys * 128 + (c % 8 ^ lane % 8) * 16;
        if (exist >= kKeys) {
          TransposeColumns<Shape, true>(block, to + c * 16 * 128, exist);
        } else {
          TransposeColumns<Shape, false>(block, to + c * 16 * 128, exist);
        }
      }
      device::FenceSharedStores();
      __syncwarp();
      if (lane == 0) {
        shared.copied_v_ring.Release(from_at);
        shared.v_ring.Fill(to_at);
      }
      from_at.Advance();
      to_at.Advance();
    }
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_TRANSPOSE_CUH_
