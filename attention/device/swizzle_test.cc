#include "attention/device/swizzle.h"

#include <set>

#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

constexpr int kRows = 64;

// The places in a line of 128 bytes of the chunks chunk_of(0) to chunk_of(7).
template <typename ChunkOf>
int PlacesOfEight(const ChunkOf& chunk_of) {
  std::set<int> places;
  for (int i = 0; i < 8; ++i) places.insert(chunk_of(i) % 8);
  return static_cast<int>(places.size());
}

template <int kRowChunks>
void TestRowsOf() {
  using Tile = Swizzle<kRowChunks>;
  // At() is a bijection of the tile.
  std::set<int> places;
  for (int row = 0; row < kRows; ++row) {
    for (int chunk = 0; chunk < kRowChunks; ++chunk) {
      const int at = Tile::At(row, chunk);
      EXPECT_GE(at, 0);
      EXPECT_LT(at, kRows * kRowChunks);
      EXPECT_TRUE(places.insert(at).second) << kRowChunks << ": row " << row << " chunk " << chunk;
    }
  }
  // ldmatrix: the same chunk of eight rows.
  for (int row = 0; row < kRows; row += 8) {
    for (int chunk = 0; chunk < kRowChunks; ++chunk) {
      EXPECT_EQ(PlacesOfEight([&](int i) { return Tile::At(row + i, chunk); }), 8)
          << kRowChunks << ": rows from " << row << ", chunk " << chunk;
    }
  }
  // Copies: eight chunks of a row, or of consecutive rows if one row has fewer.
  for (int first = 0; first < kRows * kRowChunks; first += 8) {
    EXPECT_EQ(PlacesOfEight([&](int i) {
                return Tile::At((first + i) / kRowChunks, (first + i) % kRowChunks);
              }),
              8)
        << kRowChunks << ": from " << first;
  }
}

TEST(SwizzleTest, RowsAndColumnsHaveNoConflicts) {
  TestRowsOf<1>();
  TestRowsOf<2>();
  TestRowsOf<4>();
  TestRowsOf<8>();
  TestRowsOf<12>();
  TestRowsOf<16>();
  TestRowsOf<24>();
  TestRowsOf<32>();
}

// Shows that the test above can fail: without the shift, a column of eight rows is in one place.
TEST(SwizzleTest, PlainRowsWouldConflict) {
  EXPECT_EQ(PlacesOfEight([](int i) { return i * 8 + 3; }), 1);
}

TEST(SwizzleTest, IsKnownWhenCompiled) {
  static_assert(Swizzle<8>::At(0, 5) == 5, "the first row lies as it is");
  static_assert(Swizzle<8>::At(3, 5) == 3 * 8 + (5 ^ 3), "the others are shifted");
  static_assert(Swizzle<4>::At(1, 2) == 4 + 2, "two rows a line shift together");
}

}  // namespace
}  // namespace attnlab::device
