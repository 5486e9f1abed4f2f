// The shape of a tile of attention on CUDA cores: how its rows, keys and dims are divided among the
// threads of a block, and where they lie in shared memory.
//
// A block has kRowWarps x kColumnWarps warps. A warp has kWarpRows query rows, and its lanes form a
// grid of 4 x 8. Both products are sums of outer products: columns of Q and K over the dims for S,
// P and rows of V over the keys for O. In each, the threads of a row of warps cover
//
//   S   kThreadRows x kProductKeys each
//         row   warp_row kWarpRows + 16 (i / 4) + 4 lane_row + i % 4
//         key   8 kKeyVector (j / kKeyVector) + kKeyVector lane_column + j % kKeyVector, after
//               those of the pairs of warps to the left
//   O   the same rows x 4 kThreadChunks
//         dim   32 (kColumnWarps c + warp_column) + 4 lane_column + 0, 1, 2, 3
//
// Warps that share rows form pairs that share keys as well. Each warp of a pair multiplies half of
// the dims, for all of the pair's rows and keys. It then adds up half of the rows, and keeps the
// softmax of those rows.
//
// Next to the multiply-adds, such a kernel is bound by the reads of their factors. Two limits
// decide the layout:
//
// Shared memory gives 128 bytes per cycle. A warp's read of 16 bytes per lane takes two cycles, one
// per half warp, under two conditions: neighbours (lanes l and l ^ 1, or l and l ^ 2) read the same
// address, and the rest is in different banks. That decides how lanes are arranged. With 8 x 8 sums
// per thread, 64 multiply-adds take 4 reads, and shared memory is busy half of the time.
//
// Registers have two banks, each of which gives one operand per cycle. A multiply-add reads three
// operands, or two if it shares one with the multiply-add before it. So the factors of one dim, or
// of one key, lie side by side in shared memory (Q and K are transposed, and so is P). A step needs
// few factors, which are read one step ahead, and the compiler may choose any order that repeats
// operands. With four dims of a row side by side instead, a multiply-add read 2.4 operands, which
// took one in six cycles of a product.
//
// Rows of these factors are padded to an odd number of 16-byte units. A warp copies 16 dims of 2
// keys at a time, and then at most two of them are in the same bank.
#ifndef ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_
#define ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_

#include <cstdint>

#include "attention/device/host_device.h"
#include "attention/device/query_tile.h"

namespace attnlab::device {

// kBlocksOf: blocks per multiprocessor that there must be registers for.
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

  // S: a thread's keys, how many of them are adjacent, and the rows that it adds up.
  static constexpr int kProductKeys = kKeys / (kLaneColumns * kPairsOfRow);
  static constexpr int kKeyVector = kProductKeys % 4 == 0 ? 4 : 2;
  static constexpr int kOwnRows = kPairs ? kThreadRows / 2 : kThreadRows;
  static constexpr int kRowVector = kOwnRows % 4 == 0 ? 4 : 2;
  static_assert(kKeys % (kLaneColumns * kPairsOfRow * kKeyVector) == 0, "whole vectors of keys");

  // O: the dims that a thread has.
  static constexpr int kChunkDims = 4;  // of 16 bytes of fp32
  static constexpr int kDimStep = kChunkDims * kLaneColumns * kColumnWarps;
  static constexpr int kThreadChunks = kDim / kDimStep;
  static_assert(kDim % kDimStep == 0, "whole chunks of dims");

  // Steps of a product that are unrolled. The branch back costs about ten cycles, of which the two
  // warps of a scheduler hide little. But in a loop of two steps, the compiler distributes
  // registers over the banks best. Which effect is larger was measured (docs/fa1.md).
  static constexpr int kUnroll = kPairs ? 16 : kDim == 64 ? 2 : 8;
  static_assert(kDim % (kUnroll * (kPairs ? 2 : 1)) == 0 && kKeys % kUnroll == 0);

  // How many 16-byte units of the next tile a thread has registers for (float_tile_copy.cuh).
  // Threads with eight rows have none left for fp32, which needs them only before 8.0. Threads with
  // more than 8 x 8 numbers of O have none at all.
  static constexpr int MostStaged(int element_bytes) {
    if (kThreadRows * kThreadChunks > 16) return 0;
    return element_bytes == 2 ? 5 : kThreadRows <= 4 ? 8 : 0;
  }

  // Strides in shared memory, in floats: from dim to dim of Q and K, from key to key of V and P.
  static constexpr int kQStride = kRows + 4, kKStride = kKeys + 4;
  static constexpr int kVStride = kDim, kPStride = kRows + 4;

  // Parts of shared memory, in floats from its beginning.
  static constexpr int kQ = 0;
  static constexpr int kK = kQ + kDim * kQStride;
  static constexpr int kV = kK + kDim * kKStride;
  static constexpr int kP = kV + kKeys * kVStride;
  // Per row: the factor for O.
  static constexpr int kFactors = kP + kKeys * kPStride;
  // Per pair of warps and row: one number.
  static constexpr int kExchange = kFactors + kRows;
  // At the end, in place of K: where each row of O goes (64 bits), and the row's softmax. Its sum
  // is then replaced by the final factor for O.
  static constexpr int kOffsets = kK, kSums = kOffsets + 2 * kRows, kNegMaxima = kSums + kRows;
  static_assert(kNegMaxima + kRows <= kV && kOffsets % 2 == 0);
  // Per row, two integers: the keys that it sees.
  static constexpr int kVisible = kExchange + kPairsOfRow * kRows;
  // Per row of warps, and for the block, four integers: its tiles of keys.
  static constexpr int kTiles = kVisible + 2 * kRows;
  // Where K and V of the sequence and head begin, 64 bits each.
  static constexpr int kPointers = kTiles + 4 * (kRowWarps + 1);
  // The QueryTile, which is the same for all threads and rarely read.
  static constexpr int kQueryTile = kPointers + 4;
  static constexpr int kSharedBytes = 4 * kQueryTile + static_cast<int>(sizeof(QueryTile));
  static_assert(kPointers % 2 == 0 && kQueryTile % 2 == 0, "aligned");

  // A lane's position in its warp. Lanes l and l ^ 1 have the same column, l and l ^ 2 the same
  // row.
  ATTNLAB_HOST_DEVICE static constexpr int LaneRow(int lane) {
    return (lane & 1) + (lane >> 4) * 2;
  }
  ATTNLAB_HOST_DEVICE static constexpr int LaneColumn(int lane) { return lane >> 1 & 7; }

  // A thread's first row, key and dim, and the distance from there to its others.
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
  // From a thread's first row to the first row that it adds up in S. RowStep() goes on from there.
  ATTNLAB_HOST_DEVICE static constexpr int OwnRowStep(int warp_column) {
    return kPairs && warp_column % 2 != 0 ? RowStep(kOwnRows) : 0;
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_
