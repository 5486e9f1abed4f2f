#include "attention/fa2/grid.h"

#include <cstdint>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace attnlab::fa2 {
namespace {

TEST(GridTest, EveryTileOfEveryUnitHasOneBlock) {
  for (const uint32_t units : {1u, 2u, 7u, 12u}) {
    for (const uint32_t tiles : {1u, 3u, 8u}) {
      for (const uint32_t at_a_time : {1u, 2u, 5u, 12u}) {
        Grid grid;
        grid.units = units;
        grid.tiles = tiles;
        grid.units_at_a_time = at_a_time < units ? at_a_time : units;
        std::set<std::pair<uint32_t, uint32_t>> places;
        for (uint32_t i = 0; i < BlocksOf(grid); ++i) {
          const GridPlace place = PlaceOf(grid, i);
          EXPECT_LT(place.unit, units);
          EXPECT_LT(place.tile, tiles);
          EXPECT_TRUE(places.insert({place.unit, place.tile}).second);
        }
        EXPECT_EQ(places.size(), units * tiles);
      }
    }
  }
}

TEST(GridTest, LastTilesFirstAndSoManyUnitsAtATime) {
  Grid grid;
  grid.units = 5;
  grid.tiles = 3;
  grid.units_at_a_time = 2;
  uint32_t done = 0, before = 3;
  for (uint32_t i = 0; i < BlocksOf(grid); ++i) {
    const GridPlace place = PlaceOf(grid, i);
    if (place.unit / 2 != done) {  // the next two
      EXPECT_EQ(place.unit / 2, done + 1);
      done = place.unit / 2;
      before = 3;
    }
    EXPECT_LE(place.tile, before);
    before = place.tile;
  }
  EXPECT_EQ(done, 2u);
}

// The largest grid: nothing overflows.
TEST(GridTest, TwoThousandMillionBlocks) {
  Grid grid;
  grid.units = 1u << 20;
  grid.tiles = (1u << 11) - 1;
  grid.units_at_a_time = grid.units;
  const GridPlace last = PlaceOf(grid, BlocksOf(grid) - 1);
  EXPECT_EQ(last.unit, grid.units - 1);
  EXPECT_EQ(last.tile, 0u);
}

}  // namespace
}  // namespace attnlab::fa2
