// The shape of a tile of attention on CUDA cores: how its rows, keys and dims are shared out among
// the threads of a block, and where they lie in shared memory.
//
// A block has kRowWarps x kColumnWarps warps. A warp has kWarpRows query rows, and its lanes stand
// 4 x 8. Both products are sums of outer products, of columns of Q and K over the dims, and of P
// and rows of V over the keys: for each the threads of a row of warps cover
//
//   S   kThreadRows x kProductKeys each
//         row   warp_row kWarpRows + 16 (i / 4) + 4 lane_row + i % 4
//         key   8 kKeyVector (j / kKeyVector) + kKeyVector lane_column + j % kKeyVector, and behind
//               those of the pairs of warps to the left
//   O   the same rows x 4 kThreadChunks
//         dim   32 (kColumnWarps c + warp_column) + 4 lane_column + 0, 1, 2, 3
//
// Warps of the same rows stand in pairs that share keys as well. Each of a pair multiplies half of
// the dims for all of them, and then adds up half of its rows: those rows' softmax is its own.
//
// What bounds such a kernel, next to the multiply-adds, are the reads of their factors. From shared
// memory, which gives 128 bytes a cycle, a read of 16 bytes takes a warp two cycles, one for each
// half, if neighbours (lanes l and l ^ 1, or l and l ^ 2) read the same and the rest lies in
// different banks; that decides how lanes stand. 8 x 8 sums a thread take 4 reads for 64
// multiply-adds, and shared memory is busy half of the time. From registers, whose two banks give
// one operand a cycle each, a multiply-add reads three, or two if it has one in common with the one
// before. Factors therefore lie in shared memory with those of one dim, or one key, side by side
// (Q and K transposed, P too): the few that a step needs are read one step ahead, and any order is
// open to the compiler that repeats operands. With four dims of a row side by side instead, it read
// 2.4 operands a multiply-add, and one in six cycles of a product went to that.
//
// Rows of these are padded to an odd number of 16 bytes, so that few of the 16 dims of 2 keys that
// a warp copies at a time lie in the same bank: two of them.
#ifndef ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_
#define ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_

#include <cstdint>

#include "attention/device/host_device.h"
#include "attention/device/query_tile.h"

namespace attnlab::device {

// kBlocksOf: blocks that a multiprocessor is to have registers for.
template <int kDimOf, int kRowWarpsOf, int kColumnWarpsOf, int kThreadRowsOf, int kKeysOf,
          int kBlocksOf = 1>
struct CudaCoreShape {
  static constexpr int kDim = kDimOf;  // the most that d and dv may be; less is padded with zeros
  static constexpr int kRowWarps = kRowWarpsOf, kColumnWarps = kColumnWarpsOf;
  static constexpr int kKeys = kKeysOf;  // of a tile of K and V
  static constexpr int kBlocks = kBlocksOf;

  static constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
  static constexpr int kThreadRows = kThreadRowsOf;
  static constexpr int kLaneRows = 4, kLaneColumns = 8;
  static constexpr int kWarpRows = kLaneRows * kThreadRows;
  static constexpr int kRows = kRowWarps * kWarpRows;  // of a tile of Q
  static_assert(kThreadRows % 4 == 0, "rows are read by four");

  static constexpr bool kPairs = kColumnWarps > 1;
  static constexpr int kPairsOfRow = kPairs ? kColumnWarps / 2 : 1;
  static_assert(kColumnWarps == 1 || kColumnWarps % 2 == 0);

  // Of S: keys of a thread, as many at a time as lie side by side, and the rows that it adds up.
  static constexpr int kProductKeys = kKeys / (kLaneColumns * kPairsOfRow);
  static constexpr int kKeyVector = kProductKeys % 4 == 0 ? 4 : 2;
  static constexpr int kOwnRows = kPairs ? kThreadRows / 2 : kThreadRows;
  static constexpr int kRowVector = kOwnRows % 4 == 0 ? 4 : 2;
  static_assert(kKeys % (kLaneColumns * kPairsOfRow * kKeyVector) == 0, "whole vectors of keys");

  // Of O.
  static constexpr int kChunkDims = 4;  // of 16 bytes of fp32
  static constexpr int kDimStep = kChunkDims * kLaneColumns * kColumnWarps;
  static constexpr int kThreadChunks = kDim / kDimStep;
  static_assert(kDim % kDimStep == 0, "whole chunks of dims");

  // Steps of a product that stand one after the other in its loop. The branch back costs some ten
  // cycles, during which two warps of a scheduler hide little of each other; but of a loop of two
  // steps the compiler distributes registers over the banks best. Which of them weighs more was
  // measured (docs/fa1.md).
  static constexpr int kUnroll = kPairs ? 16 : kDim == 64 ? 2 : 8;
  static_assert(kDim % (kUnroll * (kPairs ? 2 : 1)) == 0 && kKeys % kUnroll == 0);

  // How many times 16 bytes of the next tile a thread has registers for (float_tile_copy.cuh).
  // Those with eight rows have none left for fp32, which only before 8.0 would want them, nor those
  // with more than 8 x 8 of O.
  static constexpr int MostStaged(int element_bytes) {
    if (kThreadRows * kThreadChunks > 16) return 0;
    return element_bytes == 2 ? 5 : kThreadRows <= 4 ? 8 : 0;
  }

  // Floats from dim to dim of Q and K in shared memory, and from key to key of V and P.
  static constexpr int kQStride = kRows + 4, kKStride = kKeys + 4;
  static constexpr int kVStride = kDim, kPStride = kRows + 4;

  // Parts of shared memory, in floats from its beginning.
  static constexpr int kQ = 0;
  static constexpr int kK = kQ + kDim * kQStride;
  static constexpr int kV = kK + kDim * kKStride;
  static constexpr int kP = kV + kKeys * kVStride;
  // For each row what O is to be multiplied by.
  static constexpr int kFactors = kP + kKeys * kPStride;
  // A number of each pair of warps for each row.
  static constexpr int kExchange = kFactors + kRows;
  // At the end, in place of K: where O of each row goes, in 64 bits, and its softmax, whose sum
  // becomes what O is multiplied by.
  static constexpr int kOffsets = kK, kSums = kOffsets + 2 * kRows, kNegMaxima = kSums + kRows;
  static_assert(kNegMaxima + kRows <= kV && kOffsets % 2 == 0);
  // For each row two integers: which keys it sees.
  static constexpr int kVisible = kExchange + kPairsOfRow * kRows;
  // For each row of warps, and for the block, four integers: its tiles of keys.
  static constexpr int kTiles = kVisible + 2 * kRows;
  // Where K and V of the sequence and head begin, in 64 bits each.
  static constexpr int kPointers = kTiles + 4 * (kRowWarps + 1);
  // What is the same for all threads and seldom looked at.
  static constexpr int kQueryTile = kPointers + 4;
  static constexpr int kSharedBytes = 4 * kQueryTile + static_cast<int>(sizeof(QueryTile));
  static_assert(kPointers % 2 == 0 && kQueryTile % 2 == 0, "aligned");

  // Where a lane stands in its warp. Lanes l and l ^ 1 have the same column, l and l ^ 2 the same
  // row.
  ATTNLAB_HOST_DEVICE static constexpr int LaneRow(int lane) {
    return (lane & 1) + (lane >> 4) * 2;
  }
  ATTNLAB_HOST_DEVICE static constexpr int LaneColumn(int lane) { return lane >> 1 & 7; }

  // A thread's first row, key and dim, and how far its others are from there.
  ATTNLAB_HOST_DEVICE static constexpr int FirstRow(int warp_row, int lane) {
    return warp_row * kWarpRows + 4 * LaneRow(lane);
  }
  ATTNLAB_HOST_DEVICE static constexpr int FirstKey(int warp_column, int lane) {
    return warp_column / 2 * (kLaneColumns * kProductKeys) + kKeyVector * LaneColumn(lane);
  }
  ATTNLAB_HOST_DEVICE static constexpr int FirstDim(int warp_column, int lane) {
    return kChunkDims * (warp_column * kLaneColumns + LaneColumn(lane));
  }
  ATTNLAB_HOST_DEVICE static constexpr int RowStep(int i) { return i / 4 * 16 + i % 4; }
  ATTNLAB_HOST_DEVICE static constexpr int KeyStep(int j) {
    return j / kKeyVector * (kLaneColumns * kKeyVector) + j % kKeyVector;
  }
  // From a thread's first row to the first of those that it adds up in S; then RowStep() again.
  ATTNLAB_HOST_DEVICE static constexpr int OwnRowStep(int warp_column) {
    return kPairs && warp_column % 2 != 0 ? RowStep(kOwnRows) : 0;
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_
