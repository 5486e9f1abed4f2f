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
// Plain C++, because device code includes it.
#ifndef ATTENTION_SPLIT_K_SPLIT_H_
#define ATTENTION_SPLIT_K_SPLIT_H_

#include <cstdint>

#include "attention/device/divisor.h"
#include "attention/device/host_device.h"
#include "attention/device/kv_tiles.h"

namespace attnlab::split_k {

// Parts begin at multiples of this many keys from where a tile begins, which is one, too.
constexpr int kPartKeys = 16;

// The grid of a launch: tiles change fastest, then parts, then units. A unit is a (sequence, KV
// head) pair.
struct SplitGrid {
  device::Divisor heads;  // units per sequence
  device::Divisor tiles;  // query tiles per unit
  device::Divisor parts;  // per tile
  int32_t pack = 1;       // query heads per KV head
  uint32_t units = 0;
  // The keys of a part; the last part of a tile has the rest. 0: InvariantPartKeys() of the tile's.
  int64_t part_keys = 0;
};

struct SplitPlace {
  uint32_t unit = 0, part = 0, tile = 0;
};

ATTNLAB_HOST_DEVICE inline SplitPlace PlaceOf(const SplitGrid& grid, uint32_t index) {
  const uint32_t parts_before = grid.tiles.Divide(index);
  const uint32_t unit = grid.parts.Divide(parts_before);
  return {unit, parts_before - unit * grid.parts.Value(),
          index - parts_before * grid.tiles.Value()};
}

// The block of a place.
ATTNLAB_HOST_DEVICE inline int64_t IndexOf(const SplitGrid& grid, const SplitPlace& place) {
  return (int64_t{place.unit} * grid.parts.Value() + place.part) * grid.tiles.Value() + place.tile;
}

// At most 2^31 - 1.
ATTNLAB_HOST_DEVICE inline uint32_t BlocksOf(const SplitGrid& grid) {
  return grid.units * grid.parts.Value() * grid.tiles.Value();
}

// How many keys a part has if that depends on the tile alone: a compromise between many tiles, for which
// one part each would be best, and few. `keys` is below 2^31.
constexpr int kInvariantKeys = 256;
ATTNLAB_HOST_DEVICE inline int64_t InvariantPartKeys(int64_t keys) {
  const int step = (keys <= 16384 ? 8 : 16) * kInvariantKeys;
  return (keys + step - 1) / step * kInvariantKeys;
}
// The most parts of any tile with at most so many keys.
inline int64_t MostInvariantParts(int64_t keys) {
  if (keys > 16384) return 16;
  return keys > 8 * kInvariantKeys ? 8 : (keys + kInvariantKeys - 1) / kInvariantKeys;
}

// How many keys a part has of a tile that walks `keys` keys.
ATTNLAB_HOST_DEVICE inline int64_t PartKeys(const SplitGrid& grid, int64_t keys) {
  return grid.part_keys > 0 ? grid.part_keys : InvariantPartKeys(keys);
}

// The keys of part `part` of a tile. There are none if the parts before it have them all.
ATTNLAB_HOST_DEVICE inline device::KvTiles PartOf(const SplitGrid& grid,
                                                  const device::KvTiles& tiles, uint32_t part) {
  const int64_t keys = PartKeys(grid, tiles.end - tiles.begin);
  return tiles.Between(tiles.begin + part * keys, tiles.begin + (part + 1) * keys);
}

// The parts of a tile that has these keys: those after them were not computed.
ATTNLAB_HOST_DEVICE inline uint32_t PartsOf(const SplitGrid& grid, const device::KvTiles& tiles) {
  const auto all = static_cast<uint32_t>(tiles.end - tiles.begin);
  const auto keys = static_cast<uint32_t>(PartKeys(grid, all));
  return keys == 0 ? 0 : (all + keys - 1) / keys;
}

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
