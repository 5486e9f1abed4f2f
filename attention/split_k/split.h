// How the keys of a query tile are divided among blocks, and where each block leaves its part of the
// result.
//
// The rows of a tile are those of all query heads that share a KV head, so that each byte of K and V
// is read once. A block computes one part: the tile's rows over a range of its keys. If there are
// several parts, each leaves the state of the online softmax and O, not yet divided, in fp32 in the
// workspace. The block that is done last combines them (device/online_softmax.h).
//
//   keys of a tile    | part 0  | part 1  | part 2  | part 3 |
//                         |         |         |         |
//                       m, l, O   m, l, O   m, l, O   m, l, O      workspace
//                           \         \        /        /
//                              the last block:  O, LSE
//
// On 9.0 and later, few parts may be a cluster of blocks instead, which write to each other's shared
// memory. That is faster, and takes no workspace.
//
// Plain C++, because device code includes it.
#ifndef ATTENTION_SPLIT_K_SPLIT_H_
#define ATTENTION_SPLIT_K_SPLIT_H_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/divisor.h"
#include "attention/device/host_device.h"
#include "attention/device/kv_tiles.h"

namespace attnlab::split_k {

// Parts begin at multiples of this many keys from where a tile begins, which is one, too.
constexpr int kPartKeys = 16;

// The grid of a launch: parts change fastest, then tiles, then units. A unit is a (sequence, KV head)
// pair. Rows and keys of a sequence are fewer than 2^31.
struct SplitGrid {
  device::Divisor heads;  // units per sequence
  device::Divisor tiles;  // query tiles per unit
  device::Divisor parts;  // per tile
  device::Divisor pack;   // query heads per KV head
  uint32_t units = 0;
  // The keys of a range; the last range of a tile has the rest.
  uint32_t range_keys = 0;
  // Unless 0: ranges depend on the tile alone, and have so many times InvariantPartKeys().
  uint32_t invariant = 0;
  // 2^share_shift blocks, one or four, have a range: a part each. Of four, each has every fourth 16 keys.
  int32_t share_shift = 0;
  // Unless 0: the 2^cluster_shift parts of a tile are a cluster of blocks (exchange.cuh).
  int32_t cluster_shift = 0;
  // Whether each tile walks all keys of the longest sequence, so that those of a part are known at once.
  bool prefetches = false;
};

// The most parts of a cluster.
constexpr int kClusterParts = 8;

struct SplitPlace {
  uint32_t sequence = 0, head = 0, tile = 0, part = 0;
};

ATTNLAB_HOST_DEVICE inline SplitPlace PlaceOf(const SplitGrid& grid, uint32_t index) {
  const uint32_t tiles_before = grid.parts.Divide(index);
  const uint32_t unit = grid.tiles.Divide(tiles_before);
  const uint32_t sequence = grid.heads.Divide(unit);
  return {sequence, unit - sequence * grid.heads.Value(), tiles_before - unit * grid.tiles.Value(),
          index - tiles_before * grid.parts.Value()};
}

// At most 2^31 - 1.
ATTNLAB_HOST_DEVICE inline uint32_t BlocksOf(const SplitGrid& grid) {
  return grid.units * grid.parts.Value() * grid.tiles.Value();
}

// Keys [begin, end) of a tile or a part. All rows see those of [full_begin, full_end).
struct SplitKeys {
  int32_t begin = 0, full_begin = 0, full_end = 0, end = 0;
};

// The keys of a tile that has queries [first, last] of a sequence.
ATTNLAB_HOST_DEVICE inline SplitKeys KeysOf(const Mask& mask, int32_t first, int32_t last,
                                            int32_t q_len, int32_t kv_len) {
  if (mask.kind == Mask::Kind::kNone) return {0, 0, kv_len / kPartKeys * kPartKeys, kv_len};
  const device::KvTiles tiles =
      device::KvTilesOf(mask, first, int64_t{last} + 1, q_len, kv_len, kPartKeys);
  return {static_cast<int32_t>(tiles.begin), static_cast<int32_t>(tiles.full_begin),
          static_cast<int32_t>(tiles.full_end), static_cast<int32_t>(tiles.end)};
}

// How many keys a part has if that depends on the tile alone, and there are few tiles.
constexpr uint32_t kInvariantKeys = 128;
ATTNLAB_HOST_DEVICE inline uint32_t InvariantPartKeys(uint32_t keys) {
  const uint32_t shift = keys <= 16384 ? 3 : 4;  // parts: 8 or 16
  return ((keys + (kInvariantKeys << shift) - 1) / kInvariantKeys >> shift) * kInvariantKeys;
}
// The most parts of any tile with at most so many keys.
inline int64_t MostInvariantParts(int64_t keys) {
  if (keys > 16384) return 16;
  return keys > 8 * kInvariantKeys ? 8 : (keys + kInvariantKeys - 1) / kInvariantKeys;
}

// How many keys a range has of a tile that walks `keys` keys.
ATTNLAB_HOST_DEVICE inline uint32_t RangeKeys(const SplitGrid& grid, uint32_t keys) {
  // Both worked out, so that neither way jumps to code that is not there yet.
  const uint32_t invariant = grid.invariant * InvariantPartKeys(keys);
  return grid.invariant != 0 ? invariant : grid.range_keys;
}

// The index-th of ranges of so many keys. There are none if the ranges before it have them all.
ATTNLAB_HOST_DEVICE inline SplitKeys Subrange(const SplitKeys& whole, uint32_t keys,
                                              uint32_t index) {
  const auto all = static_cast<uint32_t>(whole.end - whole.begin);
  const uint32_t from = index * keys;
  if (from >= all) return {};
  SplitKeys of;
  of.begin = whole.begin + static_cast<int32_t>(from);
  of.end = all - from <= keys ? whole.end : of.begin + static_cast<int32_t>(keys);
  of.full_begin = whole.full_begin > of.begin ? whole.full_begin : of.begin;
  of.full_end = whole.full_end < of.end ? whole.full_end : of.end;
  if (of.full_end <= of.full_begin) of.full_begin = of.full_end = of.begin;
  return of;
}

// The range of which block `part` of a tile has keys.
ATTNLAB_HOST_DEVICE inline SplitKeys RangeOf(const SplitGrid& grid, const SplitKeys& tile,
                                             uint32_t part) {
  return Subrange(tile, RangeKeys(grid, static_cast<uint32_t>(tile.end - tile.begin)),
                  part >> grid.share_shift);
}

// The parts of a tile that has these keys: those after them were not computed.
ATTNLAB_HOST_DEVICE inline uint32_t PartsOf(const SplitGrid& grid, const SplitKeys& tile) {
  const auto all = static_cast<uint32_t>(tile.end - tile.begin);
  if (all == 0) return 0;
  const uint32_t keys = RangeKeys(grid, all), before = (all - 1) / keys;
  const uint32_t of_last = (all - before * keys + kPartKeys - 1) / kPartKeys;
  const uint32_t most = 1u << grid.share_shift;
  return (before << grid.share_shift) + (of_last < most ? of_last : most);
}

// The tiles of kPartKeys keys of a block's range that one of its four warps has: every fourth one of [begin, end).
struct WarpTiles {
  int32_t begin = 0, end = 0;
  int32_t slice = 0;  // if not 0, each so many tiles of the range have a state of their own

  // If ranges depend on the tile alone. `range_keys`: of one that is whole; `tiles`: that this one has. Either
  // four blocks share the range, and their warps have a quarter of it each, side by side. Or a warp has the
  // same tiles as all warps of such a block. So the same keys have a state of their own, and the bits are the
  // same.
  ATTNLAB_HOST_DEVICE static WarpTiles OfInvariant(const SplitGrid& grid, uint32_t range_keys,
                                                   int32_t tiles, uint32_t part, int32_t warp) {
    const int32_t quarter = static_cast<int32_t>(range_keys / 4) / kPartKeys;
    if (grid.share_shift == 0) return {warp, tiles, quarter};
    const int32_t begin = warp * quarter, end = begin + quarter;
    return {begin + static_cast<int32_t>(part % 4), end < tiles ? end : tiles, 0};
  }
};

// A part's place in the workspace. `index` is its block's, so that blocks side by side write side by
// side. `dim` is dv, rounded up to a multiple of 4.
struct Workspace {
  unsigned long long* counters = nullptr;  // per tile
  float* states = nullptr;   // per part and row: minus the running maximum, and the sum
  float* outputs = nullptr;  // per part and row: `dim` numbers
  int32_t rows = 0, dim = 0;

  ATTNLAB_HOST_DEVICE float* State(int64_t index, int row) const {
    return states + (index * rows + row) * 2;
  }
  ATTNLAB_HOST_DEVICE float* Output(int64_t index, int row) const {
    return outputs + (index * rows + row) * dim;
  }
};

// The bytes of a workspace for so many tiles, and so many parts in all: counters, states, outputs. The
// first two are rounded up to multiples of 256.
constexpr int64_t CounterBytes(int64_t tiles) { return (tiles * 8 + 255) / 256 * 256; }
constexpr int64_t StateBytes(int64_t parts, int64_t rows) {
  return (parts * rows * 8 + 255) / 256 * 256;
}
constexpr int64_t WorkspaceBytes(int64_t tiles, int64_t parts, int64_t rows, int64_t dim) {
  return CounterBytes(tiles) + StateBytes(parts, rows) + parts * rows * dim * 4;
}

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_SPLIT_H_
