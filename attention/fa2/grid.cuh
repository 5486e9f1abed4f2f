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
  const uint32_t sequence = grid.heads.Divide(place.unit);
  const uint32_t head = place.unit - sequence * grid.heads.Value();
  return device::QueryTileOf(a, sequence, static_cast<int32_t>(head), grid.pack, place.tile, rows);
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_GRID_CUH_
