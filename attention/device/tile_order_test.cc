#include "attention/device/tile_order.h"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

// Unit and tile of each block, in order.
std::vector<std::pair<uint32_t, uint32_t>> PlacesOf(const Grid& grid) {
  std::vector<std::pair<uint32_t, uint32_t>> places;
  for (uint32_t i = 0; i < BlocksOf(grid); ++i) {
    const GridPlace place = PlaceOf(grid, i);
    places.push_back({place.unit, place.tile});
  }
  return places;
}

TEST(TileOrderTest, EveryTileOfEveryUnitHasOneBlock) {
  for (const uint32_t units : {1u, 2u, 7u, 12u}) {
    for (const uint32_t tiles : {1u, 3u, 8u}) {
      for (uint32_t end_tiles = 0; end_tiles < tiles; ++end_tiles) {
        for (uint32_t groups = 1; groups <= units; ++groups) {
          const Grid grid = MakeGrid(units, 1, tiles, groups, 1, end_tiles);
          ASSERT_EQ(BlocksOf(grid), units * tiles);
          const auto places = PlacesOf(grid);
          for (uint32_t i = 0; i < places.size(); ++i) {
            EXPECT_LT(places[i].first, units);
            EXPECT_LT(places[i].second, tiles);
            EXPECT_EQ(places[i].second < end_tiles, i >= units * (tiles - end_tiles));
          }
          EXPECT_EQ(std::set(places.begin(), places.end()).size(), units * tiles);
        }
      }
    }
  }
}

TEST(TileOrderTest, GroupAfterGroupAndInEachTheLastTilesFirst) {
  const Grid grid = MakeGrid(/*units=*/5, /*heads=*/5, /*tiles=*/3, /*groups=*/2, /*pack=*/1);
  EXPECT_THAT(PlacesOf(grid),
              testing::ElementsAre(testing::Pair(0, 2), testing::Pair(1, 2), testing::Pair(2, 2),
                                   testing::Pair(0, 1), testing::Pair(1, 1), testing::Pair(2, 1),
                                   testing::Pair(0, 0), testing::Pair(1, 0), testing::Pair(2, 0),
                                   testing::Pair(3, 2), testing::Pair(4, 2), testing::Pair(3, 1),
                                   testing::Pair(4, 1), testing::Pair(3, 0), testing::Pair(4, 0)));
}

TEST(TileOrderTest, AtTheEndTheShortTilesOfAllUnits) {
  const Grid grid = MakeGrid(/*units=*/3, /*heads=*/3, /*tiles=*/4, /*groups=*/2, /*pack=*/1,
                             /*end_tiles=*/2);
  EXPECT_THAT(PlacesOf(grid),
              testing::ElementsAre(testing::Pair(0, 3), testing::Pair(1, 3), testing::Pair(0, 2),
                                   testing::Pair(1, 2), testing::Pair(2, 3), testing::Pair(2, 2),
                                   testing::Pair(0, 1), testing::Pair(1, 1), testing::Pair(2, 1),
                                   testing::Pair(0, 0), testing::Pair(1, 0), testing::Pair(2, 0)));
}

TEST(TileOrderTest, UnitsAreHeadsOfSequences) {
  const Grid grid = MakeGrid(/*units=*/12, /*heads=*/4, /*tiles=*/3, /*groups=*/2, /*pack=*/2);
  EXPECT_EQ(grid.heads.Divide(7), 1u);
  EXPECT_EQ(grid.heads.Value(), 4u);
  EXPECT_EQ(grid.pack, 2);
}

TEST(TileOrderTest, NoTilesAreNoBlocks) {
  EXPECT_EQ(BlocksOf(MakeGrid(0, 1, 3, 1, 1)), 0u);
  EXPECT_EQ(BlocksOf(MakeGrid(3, 1, 0, 1, 1)), 0u);
}

TEST(TileOrderTest, QueriesOfTiles) {
  EXPECT_EQ(QueriesOf(3, 128, 1, 1000), 384);
  EXPECT_EQ(QueriesOf(3, 128, 1, 300), 300);
  EXPECT_EQ(QueriesOf(1, 128, 3, 1000), 43);  // the last query has rows of two of three heads
  EXPECT_EQ(QueriesOf(1, 128, 200, 1000), 1);
  EXPECT_EQ(QueriesOf(0, 128, 1, 1000), 0);
}

// The same by plain 64-bit division.
std::pair<uint32_t, uint32_t> Expected(uint64_t units, uint64_t tiles, uint64_t groups,
                                       uint64_t index) {
  const uint64_t smaller = units / groups, larger_groups = units % groups;
  const uint64_t larger_blocks = larger_groups * (smaller + 1) * tiles;
  const bool larger = index < larger_blocks;
  const uint64_t size = larger ? smaller + 1 : smaller;
  if (!larger) index -= larger_blocks;
  const uint64_t group = index / (size * tiles), rest = index % (size * tiles);
  const uint64_t first = (larger ? 0 : larger_groups * (smaller + 1)) + group * size;
  return {static_cast<uint32_t>(first + rest % size),
          static_cast<uint32_t>(tiles - 1 - rest / size)};
}

// Blocks around the first, the last, and the borders of the first groups, of the last groups, of
// the two sizes of groups, and of rows of units; and many in between.
std::set<uint64_t> SomeBlocks(uint64_t units, uint64_t tiles, uint64_t groups) {
  const uint64_t blocks = units * tiles, smaller = units / groups;
  const uint64_t larger_groups = units % groups;
  const uint64_t larger_blocks = larger_groups * (smaller + 1) * tiles;
  std::set<uint64_t> some;
  const auto add = [&](uint64_t border) {
    for (uint64_t i = border < 2 ? 0 : border - 2; i < border + 3 && i < blocks; ++i) {
      some.insert(i);
    }
  };
  add(0);
  add(blocks);
  for (uint64_t i = 0; i < 200; ++i) {
    add(i * (smaller + 1) * tiles);
    add(larger_blocks + i * smaller * tiles);
    if (i <= larger_groups) add(larger_blocks - i * (smaller + 1) * tiles);
    if (i <= groups - larger_groups) add(blocks - i * smaller * tiles);
    add(i * (smaller + 1));
    add(larger_blocks + i * smaller);
  }
  uint64_t random = 1;
  for (int i = 0; i < 3000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    some.insert((random >> 32) % blocks);
  }
  return some;
}

// The largest grids: nothing overflows.
TEST(TileOrderTest, TwoThousandMillionBlocks) {
  constexpr uint32_t kMost = (1u << 31) - 1;
  constexpr struct {
    uint32_t units, tiles;
  } kGrids[] = {{1u << 20, (1u << 11) - 1},
                {kMost, 1},
                {1, kMost},
                {kMost / 2, 2},
                {3, kMost / 3},
                {65537, 32767},
                {46341, 46340}};
  for (const auto& [units, tiles] : kGrids) {
    for (const uint32_t groups : {1u, 2u, 3u, 7u, 1000u, 65536u, units / 2, units - 1, units}) {
      if (groups < 1 || groups > units) continue;
      SCOPED_TRACE(testing::Message() << units << " units, " << tiles << " tiles, " << groups);
      const Grid grid = MakeGrid(units, 1, tiles, groups, 1);
      ASSERT_EQ(BlocksOf(grid), uint64_t{units} * tiles);
      for (const uint64_t index : SomeBlocks(units, tiles, groups)) {
        const GridPlace place = PlaceOf(grid, static_cast<uint32_t>(index));
        ASSERT_EQ(std::make_pair(place.unit, place.tile), Expected(units, tiles, groups, index))
            << "block " << index;
      }
    }
  }
}

TEST(TileOrderTest, TwoThousandMillionBlocksWithSomeAtTheEnd) {
  constexpr uint32_t kMost = (1u << 31) - 1;
  const Grid two = MakeGrid(kMost / 2, 1, 2, 1000, 1, /*end_tiles=*/1);
  ASSERT_EQ(BlocksOf(two), kMost - 1);
  EXPECT_EQ(PlaceOf(two, kMost / 2 - 1).tile, 1u);
  EXPECT_EQ(PlaceOf(two, kMost / 2 - 1).unit, kMost / 2 - 1);
  EXPECT_EQ(PlaceOf(two, kMost / 2).tile, 0u);
  EXPECT_EQ(PlaceOf(two, kMost / 2).unit, 0u);
  EXPECT_EQ(PlaceOf(two, kMost - 2).unit, kMost / 2 - 1);
  const Grid one = MakeGrid(1, 1, kMost, 1, 1, /*end_tiles=*/kMost - 1);
  ASSERT_EQ(BlocksOf(one), kMost);
  EXPECT_EQ(PlaceOf(one, 0).tile, kMost - 1);
  EXPECT_EQ(PlaceOf(one, 1).tile, kMost - 2);
  EXPECT_EQ(PlaceOf(one, kMost - 1).tile, 0u);
}

}  // namespace
}  // namespace attnlab::device
