// What the split-K kernels are compiled for.
//
// Plain C++, because device code includes it.
#ifndef ATTENTION_SPLIT_K_SHAPE_H_
#define ATTENTION_SPLIT_K_SHAPE_H_

#include "attention/split_k/split.h"

namespace attnlab::split_k {

// On tensor cores. Each warp has its own keys, all rows of the tile, and a ring of its own in shared
// memory, so warps never wait for each other before the end.
template <int HeadDim, int KvBytes, int Stages>
struct TensorCoreShape {
  static constexpr int kHeadDim = HeadDim;  // the most that d and dv may be
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kBlocks = 2;     // per multiprocessor that there are registers for
  static constexpr int kWarpRows = 16;  // of mma.sync; the tile's
  static constexpr int kKeys = 16;      // of a tile of a warp: kPartKeys
  static constexpr int kStages = Stages;
  static constexpr bool kFp8 = KvBytes == 1;  // K and V; Q has 16 bits
  static constexpr int kSharing = 1;
  static constexpr bool kSlices = HeadDim <= 128;  // whether there are registers for two O
  static constexpr int kKeptQ = HeadDim / 16;      // all of Q stays in registers

  // Shared memory: the warps' rings; at the end, in each, the warp's part (parts.cuh). Q is in the last
  // stage, to which nothing is copied before it is in registers.
  static constexpr int kRowBytes = 2 * HeadDim, kTileBytes = kKeys * KvBytes * HeadDim;
  static constexpr int kRingBytes = kStages * 2 * kTileBytes;
  static constexpr int kSharedBytes = kWarps * kRingBytes;
  static constexpr int kPartStride = kRingBytes;
  static constexpr int kOutputRow = HeadDim + 4;  // floats: rows begin in different banks
  // After the rings, if blocks are a cluster: a barrier, and the parts that others send.
  static constexpr int kExchangeBytes =
      16 + kClusterParts * (kWarpRows * (HeadDim / kClusterParts + 4) + 4) * 4;
  static_assert(kWarpRows * kRowBytes <= 2 * kTileBytes);
  static_assert(kWarpRows * kOutputRow * 4 <= kRingBytes);
};

// Stages: so that a multiprocessor of 9.0 has at least 64 KiB of K and V under way, which is what its
// share of the memory's bandwidth needs at a latency of a microsecond. Three blocks with fewer stages
// divide keys with less loss, but take up to 12 % longer where there is nothing to divide.
template <int kDim>
struct TensorCoreShapes;
template <>
struct TensorCoreShapes<64> {
  using Of16Bits = TensorCoreShape<64, 2, 5>;
  using OfFp8 = TensorCoreShape<64, 1, 8>;
};
template <>
struct TensorCoreShapes<128> {
  using Of16Bits = TensorCoreShape<128, 2, 3>;
  using OfFp8 = TensorCoreShape<128, 1, 6>;
};
template <>
struct TensorCoreShapes<256> {
  using Of16Bits = TensorCoreShape<256, 2, 2>;
  using OfFp8 = TensorCoreShape<256, 1, 3>;
};

// On CUDA cores, for fp32. Lanes of a warp form groups; a group has a key, and each lane 16 of its
// dims.
template <int HeadDim>
struct CudaCoreShape {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kBlocks = 2;  // per multiprocessor that there are registers for
  static constexpr int kRows = 4;
  static constexpr int kLaneDims = 16, kLanes = HeadDim / kLaneDims;
  static constexpr int kGroups = kThreads / kLanes;          // keys at a time
  static constexpr int kStep = kGroups < 16 ? 16 : kGroups;  // parts are whole kPartKeys
  static constexpr int kOutputRow = HeadDim + 4;
  static constexpr int kPartStride = kRows * kOutputRow * 4;
  static constexpr int kSharedBytes = kGroups * kPartStride;
};

// What the host knows of a compiled shape.
struct SplitTile {
  int head_dim = 0, rows = 0, threads = 0, blocks = 0, shared_bytes = 0;
  int exchange_bytes = 0;  // more shared memory of a block in a cluster; 0: there are no clusters
  int step = 0;            // keys that a block takes at a time; a multiple of kPartKeys (split.h)
  bool slices = false;     // whether a block may have four invariant parts
};

template <class Shape>
constexpr SplitTile TensorCoreTileOf() {
  return {Shape::kHeadDim,
          Shape::kWarpRows,
          Shape::kThreads,
          Shape::kBlocks,
          Shape::kSharedBytes,
          Shape::kExchangeBytes,
          Shape::kWarps * Shape::kKeys,
          Shape::kSlices};
}
template <class Shape>
constexpr SplitTile CudaCoreTileOf() {
  return {Shape::kHeadDim, Shape::kRows, Shape::kThreads, Shape::kBlocks, Shape::kSharedBytes, 0,
          Shape::kStep};
}

inline constexpr SplitTile kTensorCoreTiles[] = {
    TensorCoreTileOf<TensorCoreShapes<64>::Of16Bits>(),
    TensorCoreTileOf<TensorCoreShapes<128>::Of16Bits>(),
    TensorCoreTileOf<TensorCoreShapes<256>::Of16Bits>(),
};
inline constexpr SplitTile kFp8Tiles[] = {
    TensorCoreTileOf<TensorCoreShapes<64>::OfFp8>(),
    TensorCoreTileOf<TensorCoreShapes<128>::OfFp8>(),
    TensorCoreTileOf<TensorCoreShapes<256>::OfFp8>(),
};
inline constexpr SplitTile kCudaCoreTiles[] = {
    CudaCoreTileOf<CudaCoreShape<64>>(),
    CudaCoreTileOf<CudaCoreShape<128>>(),
    CudaCoreTileOf<CudaCoreShape<256>>(),
};

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_SHAPE_H_
