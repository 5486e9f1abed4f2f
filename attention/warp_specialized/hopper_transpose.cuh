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
//
// The rows of the transposed tile are V's columns. Of each 16, rows 2k, 2k + 1, 8 + 2k and 8 + 2k + 1 have columns 4k to
// 4k + 3. wgmma gives lane k of a row these rows of the sum, so it has 4 neighbouring columns of O, and needs one exchange
// to have 8 that it can store at once (hopper_output.cuh), not two.
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

// Of 128 columns of a tile, every other 16. `from`, `to`: the lane's rows of the first of them. `first`,
// `second`: what __byte_perm selects for the lane's columns of matrices 0 and 2, and of 1 and 3.
template <typename Shape>
__device__ void TransposeBlock(uint32_t from, uint32_t to, uint32_t first, uint32_t second) {
  constexpr int kBlocks = Shape::kKeys / 32, kColumns = Shape::kDimV < 128 ? Shape::kDimV : 128,
                kCount = kColumns / (16 * Shape::kTransposers) * kBlocks, kAhead = 3;
  uint32_t x[kAhead][4];
  // Step i has 32 keys of 16 columns. The swizzle exchanges chunks of 16 bytes by exclusive or.
  const auto load = [&](int i) {
    device::LoadMatricesTransposed(
        x[i % kAhead], (from ^ i / kBlocks * 16 * Shape::kTransposers) + i % kBlocks * 32 * 128);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    auto& y = x[i % kAhead];
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const uint32_t one = __byte_perm(y[j], y[j + 1], first);
      y[j + 1] = __byte_perm(y[j], y[j + 1], second);
      y[j] = one;
    }
    // Of a row of the transposed tile, 32 keys are two chunks.
    device::StoreMatrices((to ^ i % kBlocks * 32) + i / kBlocks * 16 * Shape::kTransposers * 128,
                          y);
    if (i + kAhead < kCount) load(i + kAhead);
  }
}

// Of lane `lane` of warp `warp`, where it reads and writes first, in bytes, and what it selects.
struct TransposeLane {
  uint32_t from, to, first, second;

  // The lane points ldmatrix at a key, and stmatrix at a row. stmatrix stores 8 rows at a time. They lie in different
  // banks if, of columns 2c and 2c + 1, matrices 0 and 2 have the first where c is even and the second where it is
  // odd. Matrices 1 and 3 have the others. Matrices 0 and 1 have the first half of the keys.
  __device__ TransposeLane(int lane, int warp) {
    constexpr uint32_t kFirst = 0x6420, kSecond = 0x7531;
    from = lane * 128 + (lane % 8 ^ warp) * 16;
    const int c = lane % 8, row = c % 2 * 8 + c / 2 * 2 + (lane / 8 % 2 ^ c % 2);
    to = (warp * 16 + row) * 128 + (lane / 16 ^ row % 8) * 16;
    const bool odd = lane / 4 % 2 == 1;  // c of what it permutes is lane / 4
    first = odd ? kSecond : kFirst, second = odd ? kFirst : kSecond;
  }
};

// One of Shape::kTransposers warps. Each has every other 16 columns.
template <typename Shape>
__device__ void Transpose(const HopperArguments& h, HopperShared<Shape>& shared, int warp) {
  constexpr int kKeys = Shape::kKeys;
  typename device::Ring<Shape::kWorks>::Place work_at;
  typename device::Ring<Shape::kCopiedStages>::Place from_at;
  typename device::Ring<Shape::kStagesV>::Place to_at;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const TransposeLane of_lane(lane, warp);
  for (;; work_at.Advance()) {
    shared.work_ring.WaitFull(work_at);
    const int tiles = shared.work[work_at.stage].tiles, keys = shared.work[work_at.stage].keys;
    __syncwarp();
    if (tiles == Work::kNoMore) return;
    if (lane == 0) shared.work_ring.Release(work_at);
    for (int i = tiles - 1; i >= 0; --i) {
#pragma unroll 1
      for (int block = 0; block < Shape::kBlocksV; ++block) {
        shared.copied_v_ring.WaitFull(from_at);
        // Rows beyond the sequence may be NaN.
        if (h.rows_beyond && keys < (i + 1) * kKeys) {
          for (int key = keys - i * kKeys + lane; key < kKeys; key += 32) {
            for (int chunk = warp; chunk < 8; chunk += Shape::kTransposers) {
              char* const at = shared.copied_v[from_at.stage] + key * 128;
              reinterpret_cast<uint4*>(at)[chunk ^ key % 8] = make_uint4(0, 0, 0, 0);
            }
          }
          __syncwarp();
        }
        if (block == 0) shared.v_ring.WaitEmpty(to_at);
        const uint32_t from = device::SharedAddress(shared.copied_v[from_at.stage]) + of_lane.from,
                       to = device::SharedAddress(shared.v[to_at.stage]) + of_lane.to;
        TransposeBlock<Shape>(from, to + block * 128 * 128, of_lane.first, of_lane.second);
        device::FenceSharedStores();
        __syncwarp();
        if constexpr (Shape::kCluster > 1) {
          if (lane < Shape::kCluster) shared.copied_v_ring.ReleaseIn(lane, from_at);
        } else {
          if (lane == 0) shared.copied_v_ring.Release(from_at);
        }
        from_at.Advance();
      }
      if (lane == 0) shared.v_ring.Fill(to_at);
      to_at.Advance();
    }
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_TRANSPOSE_CUH_
