// The blocks of a launch, one a query tile, in one dimension, and begun in that order.
//
// Units, (sequence, head) pairs, are in groups, one group after the other; in a group the last
// query tiles of all its units come first. Under a causal mask those see the most keys. With about
// as many blocks a group as the GPU has at a time (or twice as many, on CUDA cores), a place that
// had a long one gets a short one of the next group and the other way round, so that all are done
// at the same time, and few heads are under way, whose K and V stay in the L2 cache. Without a mask
// all blocks are as long, and each unit is a group.
//
// The first `end_tiles` query tiles of each unit are in no group: those of all units are the last
// blocks of the launch, the longer ones first. The last group is then done before the GPU runs out
// of blocks, and these are short, so that none of its multiprocessors waits long for others. Their
// keys are read once more for it.
#ifndef ATTENTION_DEVICE_TILE_ORDER_H_
#define ATTENTION_DEVICE_TILE_ORDER_H_

#include <algorithm>
#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/divisor.h"
#include "attention/device/host_device.h"
#include "attention/device/query_tile.h"

namespace attnlab::device {

struct Grid {
  uint32_t units = 0;  // (sequence, head) pairs, or (sequence, KV head) where heads are packed
  uint32_t tiles = 0;  // query tiles of each
  int32_t pack = 1;    // query heads whose rows share tiles (query_tile.h)
  Divisor heads;       // units of a sequence

  // Groups are of two sizes that differ by one unit, the larger first. Blocks and units of a group
  // of either size, and of all of the larger ones together.
  Divisor group_blocks[2], group_units[2];
  uint32_t larger_blocks = 0, larger_units = 0;

  uint32_t end_tiles = 0;
  uint32_t blocks_in_groups = 0;  // of all groups, behind which those of end_tiles begin
  Divisor all_units;
};

// `groups`: from 1 to `units`, or anything where there is no block. units * tiles: at most 2^31
// - 1. `end_tiles`: fewer than `tiles`, or anything where there is no block.
inline Grid MakeGrid(uint32_t units, uint32_t heads, uint32_t tiles, uint32_t groups, int32_t pack,
                     uint32_t end_tiles = 0) {
  Grid grid;
  grid.units = units;
  grid.tiles = tiles;
  grid.pack = pack;
  if (units == 0 || tiles == 0) return grid;
  grid.heads = Divisor(heads);
  grid.end_tiles = end_tiles;
  grid.blocks_in_groups = units * (tiles - end_tiles);
  grid.all_units = Divisor(units);
  const uint32_t smaller = units / groups;
  grid.larger_units = units % groups * (smaller + 1);
  grid.larger_blocks = grid.larger_units * (tiles - end_tiles);
  for (int i = 0; i < 2; ++i) {
    // Where all groups are of one size there is none of the larger, which may be beyond 2^31.
    const uint32_t size = i == 0 && grid.larger_units > 0 ? smaller + 1 : smaller;
    grid.group_units[i] = Divisor(size);
    grid.group_blocks[i] = Divisor(size * (tiles - end_tiles));
  }
  return grid;
}

// The queries that the first `tiles` tiles of a unit have rows of.
inline int64_t QueriesOf(int64_t tiles, int64_t rows, int64_t pack, int64_t sq) {
  return std::min(sq, (tiles * rows + pack - 1) / pack);
}

// At most 2^31 - 1.
inline uint32_t BlocksOf(const Grid& grid) { return grid.units * grid.tiles; }

struct GridPlace {
  uint32_t unit = 0, tile = 0;
};

// Of block `index`.
ATTNLAB_HOST_DEVICE inline GridPlace PlaceOf(const Grid& grid, uint32_t index) {
  if (index >= grid.blocks_in_groups) {
    const uint32_t block = index - grid.blocks_in_groups;
    const uint32_t row = grid.all_units.Divide(block);
    return {block - row * grid.units, grid.end_tiles - 1 - row};
  }
  const bool smaller = index >= grid.larger_blocks;
  const uint32_t block = smaller ? index - grid.larger_blocks : index;
  const uint32_t group = grid.group_blocks[smaller].Divide(block);
  const uint32_t rest = block - group * grid.group_blocks[smaller].Value();
  const uint32_t units = grid.group_units[smaller].Value();
  const uint32_t row = grid.group_units[smaller].Divide(rest);
  const uint32_t first = (smaller ? grid.larger_units : 0) + group * units;
  return {first + rest - row * units, grid.tiles - 1 - row};
}

// The query tile, of `rows` rows, of block `index`.
ATTNLAB_HOST_DEVICE inline QueryTile TileOfBlock(const Arguments& a, const Grid& grid,
                                                 uint32_t index, int rows) {
  const GridPlace place = PlaceOf(grid, index);
  const uint32_t sequence = grid.heads.Divide(place.unit);
  const uint32_t head = place.unit - sequence * grid.heads.Value();
  return QueryTileOf(a, sequence, static_cast<int32_t>(head), grid.pack, place.tile, rows);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_TILE_ORDER_H_
