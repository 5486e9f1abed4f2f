// How the blocks of a cluster merge a tile's parts: each has a share of O's columns, of all rows, and
// every block of the cluster sends it its part of them.
//
//   block 0    | m l | o             |     a row of a part; the state goes to all blocks
//   block 1    | m l | o             |
//                     |    |    |   \.
//            block   0    1    2    3      merges all parts of its columns, stores O
//
// What is sent brings its count along, so nobody waits for a fence, which takes as long as a tile.
//
// All threads of all blocks call Begin(), WaitForBlocks() and Merge(); those of blocks with keys call
// SendPart() between the last two. A block ends when all parts have come, so nothing is sent to a block
// that has ended.
#ifndef ATTENTION_SPLIT_K_EXCHANGE_CUH_
#define ATTENTION_SPLIT_K_EXCHANGE_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/hopper/cluster.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/split_k/parts.cuh"
#include "attention/split_k/shape.h"
#include "attention/split_k/split.h"

namespace attnlab::split_k {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kHasClusters = true;
#else
constexpr bool kHasClusters = false;
#endif

template <class Shape>
class Exchange {
 public:
  __device__ Exchange(const SplitGrid& grid, const BlockPart& block, char* shared)
      : grid_(grid),
        block_(block),
        shared_(shared),
        columns_(Shape::kHeadDim >> grid.cluster_shift) {}

  // Before anything is sent to this block.
  __device__ void Begin() const {
    if (threadIdx.x == 0) {
      Arrived()->Init(1);
      const int rows = static_cast<int>(block_.parts) * block_.tile.Count();
      Arrived()->ArriveAndExpect(rows * (columns_ + 2) * 4);
    }
    device::ClusterArrive();
  }
  // All threads, before they send.
  __device__ void WaitForBlocks() const { device::ClusterWait(); }

  // Merges this block's parts, which its warps left in shared memory, and sends each block its columns.
  // All threads call it, after a barrier.
  __device__ void SendPart() const {
    constexpr int kFours = Shape::kHeadDim / 4;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < block_.tile.Count() * kFours;
         i += Shape::kThreads) {
      const int row = i / kFours, column = i % kFours * 4;
      const Merged merged = MergeShared<Shape, Shape::kWarps>(shared_, row, column);
      const int block = column / kSmallestShare >> (3 - grid_.cluster_shift);
      const int to = RowOf(static_cast<int>(block_.part), row), own = column & (columns_ - 1);
      Send(block, to + own * 4, merged.o);
      if (own == 0) {
        Send(block, to + columns_ * 4, make_float2(merged.softmax.neg_max, merged.softmax.sum));
      }
    }
  }

  // Waits for all parts, then merges and stores this block's columns. A lane merges four parts, so two
  // lanes do if there are eight.
  template <typename T>
  __device__ void Merge(const device::Arguments& a) const {
    static_assert(kClusterParts == 8);
    Arrived()->Wait(0);
    const int fours = columns_ / 4, items = block_.tile.Count() * fours;
    const int shift = grid_.cluster_shift == 3 ? 1 : 0;
    const int thread = static_cast<int>(threadIdx.x), from = (thread & shift) * 4;
#pragma unroll 1
    for (int first = 0; first < items; first += Shape::kThreads >> shift) {
      const int i = first + (thread >> shift);
      const int row = i / fours, column = i % fours * 4;
      const int dim = static_cast<int>(block_.part) * columns_ + column;
      const bool exists = i < items && dim < a.dv;
      Merged merged;
      if (exists) {
        merged = MergeParts<4>(min(4, static_cast<int>(block_.parts) - from), [&](int part) {
          const auto* const at = reinterpret_cast<const float*>(shared_ + RowOf(from + part, row));
          return PartAt(at + columns_, at + column);
        });
      }
      if (shift != 0) merged.Add(NextLanes(merged));
      if (exists && from == 0) StoreRow<T>(a, grid_, block_.tile, row, dim, merged);
    }
  }

 private:
  static constexpr int kSmallestShare = Shape::kHeadDim / kClusterParts;
  static_assert(kClusterParts == 8 && kSmallestShare >= 8);

  __device__ device::Barrier* Arrived() const {
    return reinterpret_cast<device::Barrier*>(shared_ + Shape::kSharedBytes);
  }
  // Where a part's row is in the shared memory of whoever merges it: numbers, then the state. Parts
  // begin in different banks.
  __device__ int RowOf(int part, int row) const {
    const int row_floats = columns_ + 4;
    return Shape::kSharedBytes + 16 +
           (part * (Shape::kWarpRows * row_floats + 4) + row * row_floats) * 4;
  }
  template <typename Numbers>
  __device__ void Send(int block, int to, const Numbers& x) const {
    const uint32_t there = device::InBlock(device::SharedAddress(shared_), block);
    device::StoreAsync(there + to, x, there + Shape::kSharedBytes);
  }

  const SplitGrid& grid_;
  const BlockPart& block_;
  char* const shared_;
  const int columns_;  // of a block
};

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_EXCHANGE_CUH_
