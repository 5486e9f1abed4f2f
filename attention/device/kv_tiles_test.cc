#include "attention/device/kv_tiles.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

// Checks the tiles of one query tile against what each row sees, pair by pair.
void Check(const Mask& mask, int64_t row_begin, int64_t row_end, int64_t q_len, int64_t kv_len,
           int64_t tile) {
  const KvTiles t = KvTilesOf(mask, row_begin, row_end, q_len, kv_len, tile);
  SCOPED_TRACE(::testing::Message() << "mask " << static_cast<int>(mask.kind) << ":" << mask.left
                                    << ":" << mask.right << " rows " << row_begin << ".." << row_end
                                    << " of " << q_len << ", keys " << kv_len << " by " << tile);
  ASSERT_LE(t.begin, t.full_begin);
  ASSERT_LE(t.full_begin, t.full_end);
  ASSERT_LE(t.full_end, t.end);
  ASSERT_LE(t.end, kv_len);
  EXPECT_EQ(t.begin % tile, 0);
  EXPECT_EQ(t.full_begin % tile, 0);
  EXPECT_EQ(t.full_end % tile, 0);
  bool any_at_end = t.end == t.begin;
  for (int64_t key = 0; key < kv_len; ++key) {
    int64_t seen = 0, rows = 0;
    for (int64_t row = row_begin; row < std::min(row_end, q_len); ++row) {
      const KvRange range = VisibleKv(mask, row, q_len, kv_len);
      ++rows;
      seen += key >= range.begin && key < range.end ? 1 : 0;
    }
    if (seen > 0) {
      EXPECT_GE(key, t.begin);
      EXPECT_LT(key, t.end);
    }
    if (key >= t.full_begin && key < t.full_end) {
      EXPECT_EQ(seen, rows) << "key " << key;
    }
    if (key == t.end - 1) any_at_end = any_at_end || seen > 0;
  }
  EXPECT_TRUE(any_at_end) << "ends behind the last key that is seen";
  // No tile if the rows see nothing.
  for (int64_t first = t.begin; first < t.end; first += tile) {
    bool any = false;
    for (int64_t row = row_begin; row < std::min(row_end, q_len); ++row) {
      const KvRange range = VisibleKv(mask, row, q_len, kv_len);
      any = any || (range.begin < std::min(first + tile, t.end) && range.end > first &&
                    range.begin < range.end);
    }
    EXPECT_TRUE(any) << "tile at " << first;
  }
}

TEST(KvTilesTest, HoldAllThatIsSeenAndMaskOnlyEdges) {
  for (const Mask& mask :
       {Mask::None(), Mask::Causal(), Mask::SlidingWindow(0, 0), Mask::SlidingWindow(5, 3),
        Mask::SlidingWindow(20, 0), Mask::SlidingWindow(0, 9),
        Mask::SlidingWindow(2147483647, 2147483647)}) {
    for (const int64_t q_len : {1, 7, 16, 33}) {
      for (const int64_t kv_len : {0, 1, 15, 16, 17, 40}) {
        for (const int64_t rows : {1, 8, 16}) {
          for (int64_t row = 0; row < q_len + rows; row += rows) {
            for (const int64_t tile : {1, 8, 16}) Check(mask, row, row + rows, q_len, kv_len, tile);
          }
        }
      }
    }
  }
}

// In a long causal problem, all tiles but those at the edges are full. That makes the mask cheap.
TEST(KvTilesTest, CausalTilesAreFullBelowTheDiagonal) {
  const KvTiles t = KvTilesOf(Mask::Causal(), 512, 640, 1024, 1024, 64);
  EXPECT_EQ(t.begin, 0);
  EXPECT_EQ(t.full_begin, 0);
  EXPECT_EQ(t.full_end, 512);
  EXPECT_EQ(t.end, 640);
  EXPECT_EQ(t.Count(64), 10);
}

TEST(KvTilesTest, WindowsHaveTwoEdges) {
  const KvTiles t = KvTilesOf(Mask::SlidingWindow(255, 0), 512, 576, 1024, 1024, 64);
  EXPECT_EQ(t.begin, 256);
  EXPECT_EQ(t.full_begin, 320);
  EXPECT_EQ(t.full_end, 512);
  EXPECT_EQ(t.end, 576);
}

TEST(KvTilesTest, KeysBelowHasABitForEachKeyOfALane) {
  for (const int keys : {32, 64, 80, 112, 128}) {
    for (int pair = 0; pair < 4; ++pair) {
      std::vector<int> ends = {-(1 << 30), 1 << 30};
      for (int end = -200; end < 200; ++end) ends.push_back(end);
      for (const int end : ends) {
        const uint32_t bits = KeysBelow(end, pair, keys);
        for (int i = 0; i < keys / 4; ++i) {
          const int key = i / 2 * 8 + 2 * pair + i % 2;
          EXPECT_EQ(bits >> i & 1, key < end) << keys << " " << pair << " " << end << " " << i;
        }
      }
    }
  }
}

TEST(KvTilesTest, IsKnownWhenCompiled) {
  static_assert(KvTilesOf(Mask::None(), 0, 64, 64, 100, 64).Count(64) == 2,
                "two tiles of 100 keys");
  static_assert(KvTilesOf(Mask::None(), 0, 64, 64, 100, 64).full_end == 64, "one of them is full");
}

}  // namespace
}  // namespace attnlab::device
