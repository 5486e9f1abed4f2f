// The shape of a tile of attention on CUDA cores: how its rows, keys and dims are shared out among
// the threads of a block, and where they lie in shared memory.
//
// A block has kRowWarps x kColumnWarps warps. A warp has kWarpRows query rows; the column warps of
// the same rows share the keys of S = Q Kᵀ between them, and the dims of O = P V. Inside a warp
// threads stand 4 x 8, and each has kThreadRows rows of kThreadKeys scores in registers, and the
// same rows of 4 kThreadChunks dims of O:
//
//   row   warp_row kWarpRows + 4 i + lane_row             i < kThreadRows
//   key   8 (kColumnWarps j + warp_column) + lane_column  j < kThreadKeys
//   dim   32 (kColumnWarps c + warp_column) + 4 lane_column + 0, 1, 2, 3     c < kThreadChunks
//
// What bounds such a kernel, next to the multiply-adds, are the reads of their factors: shared
// memory gives 128 bytes a cycle. Four dims of S take kThreadRows + kThreadKeys reads of 16 bytes a
// thread for 4 kThreadRows kThreadKeys multiply-adds, four keys of O kThreadRows + 4 kThreadChunks
// for 16 kThreadRows kThreadChunks. With 8 x 8 of both that is 16 for 256, and shared memory is
// busy half of the time (a read of 16 bytes takes two cycles a warp, see below); 8 x 4 takes 12 for
// 128 and three quarters of it.
//
// Reads of 16 bytes take two cycles a warp, one for each half, where neighbours (lanes l and l ^ 1,
// or l and l ^ 2) read the same and the rest lies in different banks. That decides how lanes
// stand, and how rows are padded: by 4 floats, so that eight rows of K begin in eight places of the
// 32 banks, and those of P by 8, so that a warp's scores, 4 rows of 8 keys, are written at once.
#ifndef ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_
#define ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_

#include <cstdint>

#include "attention/device/host_device.h"
#include "attention/device/query_tile.h"

namespace attnlab::device {

template <int kDimOf, int kRowWarpsOf, int kColumnWarpsOf, int kThreadRowsOf, int kKeysOf>
struct CudaCoreShape {
  static constexpr int kDim = kDimOf;  // the most that d and dv may be; less is padded with zeros
  static constexpr int kRowWarps = kRowWarpsOf, kColumnWarps = kColumnWarpsOf;
  static constexpr int kKeys = kKeysOf;  // of a tile of K and V

  static constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
  static constexpr int kThreadRows = kThreadRowsOf;
  static constexpr int kLaneRows = 4, kLaneColumns = 8;
  static constexpr int kWarpRows = kLaneRows * kThreadRows;
  static constexpr int kRows = kRowWarps * kWarpRows;  // of a tile of Q

  static constexpr int kKeyStep = kLaneColumns * kColumnWarps;
  static constexpr int kThreadKeys = kKeys / kKeyStep;
  static constexpr int kChunkDims = 4;  // of 16 bytes of fp32
  static constexpr int kDimStep = kChunkDims * kLaneColumns * kColumnWarps;
  static constexpr int kThreadChunks = kDim / kDimStep;
  static_assert(kKeys % kKeyStep == 0 && kKeys % 4 == 0 && kDim % kDimStep == 0,
                "a thread has whole keys and chunks");

  // How many times 16 bytes of the next tile a thread has registers for (float_tile_copy.cuh).
  // Those with eight rows have none left for fp32, which only before 8.0 would want them.
  static constexpr int MostStaged(int element_bytes) {
    return element_bytes == 2 ? 5 : kThreadRows <= 4 ? 8 : 0;
  }

  // Floats from row to row in shared memory.
  static constexpr int kQkStride = kDim + 4, kVStride = kDim, kPStride = kKeys + 8;

  // Parts of shared memory, in floats from its beginning.
  static constexpr int kQ = 0;
  static constexpr int kK = kQ + kRows * kQkStride;
  static constexpr int kV = kK + kKeys * kQkStride;
  static constexpr int kP = kV + kKeys * kVStride;
  // For each row what O is to be multiplied by.
  static constexpr int kFactors = kP + kRows * kPStride;
  // A number of each column warp for each row.
  static constexpr int kExchange = kFactors + kRows;
  // At the end, in place of P: where O of each row goes, in 64 bits, and its LSE.
  static constexpr int kOffsets = kP, kLse = kOffsets + 2 * kRows;
  // For each row two integers: which keys it sees.
  static constexpr int kVisible = kExchange + kColumnWarps * kRows;
  // For each row of warps four integers: its tiles of keys.
  static constexpr int kTiles = kVisible + 2 * kRows;
  // What is the same for all threads and seldom looked at.
  static constexpr int kQueryTile = kTiles + 4 * kRowWarps;
  static constexpr int kSharedBytes = 4 * kQueryTile + static_cast<int>(sizeof(QueryTile));
  static_assert(kQueryTile % 2 == 0, "aligned");

  // Where a lane stands in its warp. Lanes l and l ^ 1 have the same column, l and l ^ 2 the same
  // row.
  ATTNLAB_HOST_DEVICE static constexpr int LaneRow(int lane) {
    return (lane & 1) + (lane >> 4) * 2;
  }
  ATTNLAB_HOST_DEVICE static constexpr int LaneColumn(int lane) { return lane >> 1 & 7; }

  // A thread's first row, key and dim, and how far its others are from there.
  ATTNLAB_HOST_DEVICE static constexpr int FirstRow(int warp_row, int lane) {
    return warp_row * kWarpRows + LaneRow(lane);
  }
  ATTNLAB_HOST_DEVICE static constexpr int FirstKey(int warp_column, int lane) {
    return warp_column * kLaneColumns + LaneColumn(lane);
  }
  ATTNLAB_HOST_DEVICE static constexpr int FirstDim(int warp_column, int lane) {
    return kChunkDims * FirstKey(warp_column, lane);
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_SHAPE_H_
