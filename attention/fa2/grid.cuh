// The query tile of a block (grid.h).
#ifndef ATTENTION_FA2_GRID_CUH_
#define ATTENTION_FA2_GRID_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/query_tile.h"
#include "attention/fa2/grid.h"

namespace attnlab::fa2 {

__device__ inline device::QueryTile TileOfBlock(const device::Arguments& a, const Grid& grid,
                                                int rows) {
  const GridPlace place = PlaceOf(grid, blockIdx.x);
  const uint32_t heads = static_cast<uint32_t>(a.hq / grid.pack);
  return device::QueryTileOf(a, place.unit / heads, static_cast<int32_t>(place.unit % heads),
                             grid.pack, place.tile, rows);
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_GRID_CUH_
