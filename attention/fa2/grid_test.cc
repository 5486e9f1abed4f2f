#include "attention/fa2/grid.h"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::fa2 {
namespace {

TEST(GridTest, EveryTileOfEveryUnitHasOneBlock) {
  for (const uint32_t units : {1u, 2u, 7u, 12u}) {
    for (const uint32_t tiles : {1u, 3u, 8u}) {
      for (uint32_t groups = 1; groups <= units; ++groups) {
        const Grid grid = MakeGrid(units, 1, tiles, groups, 1);
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

TEST(GridTest, GroupAfterGroupAndInEachTheLastTilesFirst) {
  const Grid grid = MakeGrid(/*units=*/5, /*heads=*/5, /*tiles=*/3, /*groups=*/2, /*pack=*/1);
  std::vector<std::pair<uint32_t, uint32_t>> places;
  for (uint32_t i = 0; i < BlocksOf(grid); ++i) {
    const GridPlace place = PlaceOf(grid, i);
    places.push_back({place.unit, place.tile});
  }
  EXPECT_THAT(places,
              testing::ElementsAre(testing::Pair(0, 2), testing::Pair(1, 2), testing::Pair(2, 2),
                                   testing::Pair(0, 1), testing::Pair(1, 1), testing::Pair(2, 1),
                                   testing::Pair(0, 0), testing::Pair(1, 0), testing::Pair(2, 0),
                                   testing::Pair(3, 2), testing::Pair(4, 2), testing::Pair(3, 1),
                                   testing::Pair(4, 1), testing::Pair(3, 0), testing::Pair(4, 0)));
}

TEST(GridTest, UnitsAreHeadsOfSequences) {
  const Grid grid = MakeGrid(/*units=*/12, /*heads=*/4, /*tiles=*/3, /*groups=*/2, /*pack=*/2);
  EXPECT_EQ(grid.heads.Divide(7), 1u);
  EXPECT_EQ(grid.heads.Value(), 4u);
  EXPECT_EQ(grid.pack, 2);
}

TEST(GridTest, NoTilesAreNoBlocks) {
  EXPECT_EQ(BlocksOf(MakeGrid(0, 1, 3, 1, 1)), 0u);
  EXPECT_EQ(BlocksOf(MakeGrid(3, 1, 0, 1, 1)), 0u);
}

// The largest grids: nothing overflows.
TEST(GridTest, TwoThousandMillionBlocks) {
  for (const uint32_t groups : {1u, 3u, 1u << 20}) {
    const Grid grid = MakeGrid(1u << 20, 1, (1u << 11) - 1, groups, 1);
    const GridPlace last = PlaceOf(grid, BlocksOf(grid) - 1);
    EXPECT_EQ(last.unit, grid.units - 1);
    EXPECT_EQ(last.tile, 0u);
  }
  const Grid one = MakeGrid(1, 1, (1u << 31) - 1, 1, 1);
  EXPECT_EQ(PlaceOf(one, (1u << 31) - 2).tile, 0u);
  const Grid wide = MakeGrid((1u << 31) - 1, 1, 1, 1, 1);
  EXPECT_EQ(PlaceOf(wide, (1u << 31) - 2).unit, (1u << 31) - 2);
}

}  // namespace
}  // namespace attnlab::fa2
