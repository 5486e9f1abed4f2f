// The order of a launch's blocks. The grid has one dimension and one block per query tile; blocks
// begin in the order of their index.
//
// A unit is a (sequence, head) pair. Units form groups, which run one after the other. Within a
// group, the last query tiles of all units come first: under a causal mask they see the most keys.
// A group has about as many blocks as the GPU runs at a time, or twice as many on CUDA cores. So a
// slot that had a long block of one group gets a short block of the next, and the other way round.
// All slots then finish at about the same time. Few heads are in flight at a time, so their K and V
// stay in the L2 cache. Without a mask all blocks take equally long, and each unit is a group.
//
// The first `end_tiles` query tiles of each unit are in no group. They are the last blocks of the
// launch, the longer ones first. The last group then finishes while the GPU still has blocks to
// run, and these are short, so the tail wave wastes little. In exchange, their keys are read once
// more.
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
  uint32_t tiles = 0;  // query tiles of each unit
  int32_t pack = 1;    // query heads whose rows share a tile (query_tile.h)
  Divisor heads;       // units per sequence

  // Groups have two sizes that differ by one unit; the larger groups come first. group_blocks and
  // group_units: blocks and units of a larger [0] and a smaller [1] group. larger_blocks and
  // larger_units: those of all larger groups together.
  Divisor group_blocks[2], group_units[2];
  uint32_t larger_blocks = 0, larger_units = 0;

  uint32_t end_tiles = 0;
  uint32_t blocks_in_groups = 0;  // of all groups; the blocks of end_tiles come after them
  Divisor all_units;
};

// `groups` is from 1 to `units`, and `end_tiles` is below `tiles`; neither matters if there is no
// block. units * tiles is at most 2^31 - 1.
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
    // If all groups have the same size, no group is larger. A larger size might exceed 2^31.
    const uint32_t size = i == 0 && grid.larger_units > 0 ? smaller + 1 : smaller;
    grid.group_units[i] = Divisor(size);
    grid.group_blocks[i] = Divisor(size * (tiles - end_tiles));
  }
  return grid;
}

// The number of queries that have rows in the first `tiles` tiles of a unit.
inline int64_t QueriesOf(int64_t tiles, int64_t rows, int64_t pack, int64_t sq) {
  return std::min(sq, (tiles * rows + pack - 1) / pack);
}

// At most 2^31 - 1.
ATTNLAB_HOST_DEVICE inline uint32_t BlocksOf(const Grid& grid) { return grid.units * grid.tiles; }

struct GridPlace {
  uint32_t unit = 0, tile = 0;
};

// The place of block `index`.
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

// The query tile, of `rows` rows, that block `index` computes.
ATTNLAB_HOST_DEVICE inline QueryTile TileOfBlock(const Arguments& a, const Grid& grid,
                                                 uint32_t index, int rows) {
  const GridPlace place = PlaceOf(grid, index);
  const uint32_t sequence = grid.heads.Divide(place.unit);
  const uint32_t head = place.unit - sequence * grid.heads.Value();
  return QueryTileOf(a, sequence, static_cast<int32_t>(head), grid.pack, place.tile, rows);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_TILE_ORDER_H_
