// The shapes of the portable kernel: what is compiled, how a block is divided among producers and
// consumers at run time, and the shared memory that it takes.
//
// Plain C++, because device code includes it.
#ifndef ATTENTION_WARP_SPECIALIZED_PORTABLE_SHAPE_H_
#define ATTENTION_WARP_SPECIALIZED_PORTABLE_SHAPE_H_

#include "attention/device/cuda_core_table.h"

namespace attnlab::warp_specialized {

// How the warps of a block are divided. No register depends on it, so it is chosen at run time.
struct PortableBlock {
  int consumers = 0;  // warps that compute; the block's first
  int loaders = 0;    // warps that copy K and V; after them
  int stages = 0;     // tiles of K or V in shared memory; a multiple of loaders (portable_ring.cuh)

  constexpr int Threads() const { return 32 * (consumers + loaders); }
};

constexpr int kFewestStages = 2;  // a tile of K and one of V
constexpr int kMostStages = 6;    // before 8.0 each takes two of the 16 named barriers
constexpr int kRingBytes = 2 * kMostStages * 8;  // of the ring's barriers

// What a kernel is compiled for on tensor cores, for elements of 16 bits. `HeadDim` is the most
// that d and dv may be; less is padded with zeros.
//
// MostWarps limits the block and decides the registers: all warps of a kernel have equally many,
// and a multiprocessor gives them out to four warps at a time. 12 warps have 168 registers per
// thread, 8 warps have 255. So each producer warp takes the registers of a consumer.
template <int HeadDim, int Keys, int MostWarps, int KeptQ, bool Pairs>
struct PortableShape {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kKeys = Keys;  // of a tile of K or V
  static constexpr int kMostWarps = MostWarps;
  static constexpr int kWarpRows = 32;  // each fragment of K and V serves two products
  // Whether two warps share rows (device/warp_pair.cuh): O of 32 rows takes all registers of one.
  static constexpr bool kPairs = Pairs;
  static constexpr int kSharing = Pairs ? 2 : 1;
  static constexpr int kKeptQ = KeptQ;  // fragments of Q that stay in registers

  static constexpr int Rows(const PortableBlock& block) {
    return block.consumers / kSharing * kWarpRows;
  }

  // Shared memory: what all threads know of the tile; the ring's barriers; its stages; Q and later
  // O; P of pairs, twice; the keys that each row sees. Offsets are in bytes.
  static constexpr int kRowBytes = 2 * HeadDim, kStageBytes = Keys * kRowBytes;
  static constexpr int kWarpExchange = Pairs ? kWarpRows * (Keys / 2) * 2 : 0;
  static constexpr int kKept = 0, kKeptBytes = 128;
  static constexpr int kRing = kKept + kKeptBytes, kFirstStage = 256;
  static_assert(kRing + kRingBytes <= kFirstStage);
  static constexpr int StageOf(int stage) { return kFirstStage + stage * kStageBytes; }
  static constexpr int QOf(const PortableBlock& block) { return StageOf(block.stages); }
  static constexpr int ExchangeOf(const PortableBlock& block) {
    return QOf(block) + Rows(block) * kRowBytes;
  }
  static constexpr int VisibleOf(const PortableBlock& block) {
    return ExchangeOf(block) + 2 * block.consumers * kWarpExchange;
  }
  static constexpr int SharedBytes(const PortableBlock& block) {
    return VisibleOf(block) + Rows(block) * 8;
  }
};

// By head dim. Portable64Small is for short queries. Portable256Small is for GPUs with 64 or 99 KiB of
// shared memory per block.
using Portable64 = PortableShape<64, 64, 8, 4, false>;
using Portable64Small = PortableShape<64, 64, 12, 0, false>;
using Portable128 = PortableShape<128, 64, 8, 0, false>;
using Portable256 = PortableShape<256, 64, 8, 2, true>;
using Portable256Small = PortableShape<256, 32, 8, 2, true>;

// fp32 has the small tiles of CUDA cores, whose threads need fewer than 128 registers up to head
// dim 128: that leaves room for producers. The number of consumers is the tile's.
template <int kDim>
using PortableFp32Shape = typename device::CudaCoreShapes<kDim>::Small;
constexpr int kFp32Stages = 2;
constexpr int kMostFp32Loaders = kFp32Stages;

template <class Shape>
constexpr int Fp32SharedBytes(const PortableBlock& /*block*/) {
  return Shape::kSharedBytes + kRingBytes;
}

// What the host knows of a compiled tile.
struct PortableTile {
  bool fp32 = false;
  int head_dim = 0;  // the most that d and dv may be
  int keys = 0;
  int rows = 0;     // of so many consumers:
  int sharing = 1;  // consumers come in multiples of this
  int fewest_consumers = 0, most_consumers = 0, most_warps = 0;
  int consumers = 0, loaders = 0;  // by default
  int most_stages = 0;
  int shortest_query = 0;  // tokens of a sequence for which it is the default
  int (*shared_bytes)(const PortableBlock& block) = nullptr;

  constexpr int RowsOf(int consumers_of_block) const { return consumers_of_block / sharing * rows; }
};

template <class Shape>
constexpr PortableTile TileOf(int consumers, int loaders) {
  PortableTile tile;
  tile.head_dim = Shape::kHeadDim;
  tile.keys = Shape::kKeys;
  tile.rows = Shape::kWarpRows;
  tile.sharing = tile.fewest_consumers = Shape::kSharing;
  tile.most_warps = Shape::kMostWarps;
  tile.most_consumers = (Shape::kMostWarps - 1) / Shape::kSharing * Shape::kSharing;
  tile.consumers = consumers;
  tile.loaders = loaders;
  tile.most_stages = kMostStages;
  tile.shared_bytes = &Shape::SharedBytes;
  return tile;
}

template <class Shape>
constexpr PortableTile Fp32TileOf(int loaders) {
  PortableTile tile;
  tile.fp32 = true;
  tile.head_dim = Shape::kDim;
  tile.keys = Shape::kKeys;
  tile.rows = Shape::kRows;
  tile.consumers = Shape::kThreads / 32;
  tile.sharing = tile.fewest_consumers = tile.most_consumers = tile.consumers;
  tile.most_warps = tile.consumers + kMostFp32Loaders;
  tile.loaders = loaders;
  tile.most_stages = kFp32Stages;
  tile.shared_bytes = &Fp32SharedBytes<Shape>;
  return tile;
}

// Of long queries, few rows are lost to the last tile, and a block begins and ends seldom.
constexpr PortableTile ForLongQueries(PortableTile tile, int fewest_consumers, int shortest_query) {
  tile.fewest_consumers = fewest_consumers;
  tile.shortest_query = shortest_query;
  return tile;
}

// By head dim; within one, in the order in which they are tried. Why so many consumers by default:
// up to head dim 128, a multiprocessor holds one block of all the 8 warps that there are registers
// for; at head dim 64 and short queries, two blocks of 4 and 1 warps; at 256 consumers come in pairs,
// so two warps are left.
inline constexpr PortableTile kPortableTiles[] = {
    ForLongQueries(TileOf<Portable64>(7, 1), /*fewest_consumers=*/5, /*shortest_query=*/4096),
    TileOf<Portable64Small>(4, 1),
    TileOf<Portable128>(7, 1),
    TileOf<Portable256>(6, 2),
    TileOf<Portable256Small>(6, 2),
    Fp32TileOf<PortableFp32Shape<64>>(2),
    Fp32TileOf<PortableFp32Shape<128>>(2),
    Fp32TileOf<PortableFp32Shape<256>>(2),
};
constexpr int kMostPortableDim = 256;

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_PORTABLE_SHAPE_H_
