// The blocks of a launch, one a query tile, in one dimension.
//
// Tiles that see the most keys come first, so that what is left for the end is short; and only so
// many heads are under way at a time as have their K and V in the L2 cache.
#ifndef ATTENTION_FA2_GRID_H_
#define ATTENTION_FA2_GRID_H_

#include <cstdint>

#include "attention/device/host_device.h"

namespace attnlab::fa2 {

struct Grid {
  uint32_t units = 0;  // (sequence, head) pairs, or (sequence, KV head) where heads are packed
  uint32_t tiles = 0;  // query tiles of each
  uint32_t units_at_a_time = 1;
  int32_t pack = 1;  // query heads whose rows share tiles (device/query_tile.h)
};

// At most 2^31 - 1.
inline uint32_t BlocksOf(const Grid& grid) { return grid.units * grid.tiles; }

struct GridPlace {
  uint32_t unit = 0, tile = 0;
};

// Of block `index`.
ATTNLAB_HOST_DEVICE inline GridPlace PlaceOf(const Grid& grid, uint32_t index) {
  const uint32_t first = index / (grid.tiles * grid.units_at_a_time) * grid.units_at_a_time;
  const uint32_t rest = index - first * grid.tiles;
  const uint32_t left = grid.units - first;
  const uint32_t here = left < grid.units_at_a_time ? left : grid.units_at_a_time;
  // Under a causal mask later tiles see more.
  return {first + rest % here, grid.tiles - 1 - rest / here};
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_GRID_H_
