#include "attention/device/query_tile.h"

#include <cstdint>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

// Six query heads on two KV heads, in sequences of different lengths.
class QueryTileTest : public ::testing::Test {
 protected:
  QueryTileTest() {
    a_.b = 2;
    a_.hq = 6;
    a_.group = Divisor(static_cast<uint32_t>(a_.hq / 2));
    a_.q_sequences.offsets = q_offsets_;
    a_.q_sequences.longest = 20;
    a_.q_sequences.tokens = 30;
    a_.kv_sequences.lengths = kv_lengths_;
    a_.kv_sequences.longest = 50;
    a_.q.batch_stride = 100000;
    a_.q.token_stride = 1000;
    a_.q.head_stride = 10;
    a_.k.batch_stride = 77777;
    a_.k.token_stride = 7;
    a_.k.head_stride = 3333;
  }

  static constexpr int32_t q_offsets_[] = {0, 13, 30};
  static constexpr int32_t kv_lengths_[] = {50, 41};
  Arguments a_;
};

TEST_F(QueryTileTest, TilesHaveEachRowOnce) {
  for (const int32_t pack : {1, 3}) {
    for (const int64_t rows : {1, 4, 16, 64}) {
      for (int64_t sequence = 0; sequence < 2; ++sequence) {
        const int64_t length = a_.q_sequences[sequence].length;
        std::set<std::pair<int64_t, int32_t>> queries;  // with their heads
        int64_t count = 0;
        for (int32_t head = 0; head < a_.hq / pack; ++head) {
          for (int64_t index = 0; index < 60; ++index) {
            const QueryTile tile = QueryTileOf(a_, sequence, head, pack, index, rows);
            EXPECT_LE(tile.end - tile.begin, rows);
            EXPECT_EQ(tile.q.batch, 0);
            EXPECT_EQ(tile.q.begin, q_offsets_[sequence]);
            EXPECT_EQ(tile.kv.batch, sequence);
            for (int64_t row = tile.begin; row < tile.end; ++row) {
              EXPECT_LT(tile.QueryOf(row), length);
              EXPECT_EQ(tile.HeadOf(row) / 3, tile.kv_head);
              queries.insert({tile.QueryOf(row), tile.HeadOf(row)});
              ++count;
            }
          }
        }
        EXPECT_EQ(count, length * a_.hq);
        EXPECT_EQ(queries.size(), static_cast<size_t>(count));
      }
    }
  }
}

TEST_F(QueryTileTest, OffsetsAreThoseOfTheQueryAndItsHead) {
  for (const int32_t pack : {1, 3}) {
    const QueryTile tile = QueryTileOf(a_, 1, 1, pack, 1, 8);
    ASSERT_LT(tile.begin, tile.end);
    for (int64_t row = tile.begin; row < tile.end; ++row) {
      EXPECT_EQ(tile.Offset(a_.q, row), (13 + tile.QueryOf(row)) * 1000 + tile.HeadOf(row) * 10);
    }
    // K has the padded batch, not Q's packed one.
    EXPECT_EQ(tile.KvOffset(a_.k), 77777 + tile.kv_head * 3333);
  }
}

TEST_F(QueryTileTest, HeadsChangeFastestWherePacked) {
  const QueryTile tile = QueryTileOf(a_, 0, 1, 3, 0, 16);
  EXPECT_EQ(tile.kv_head, 1);
  for (int64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(tile.QueryOf(row), row / 3);
    EXPECT_EQ(tile.HeadOf(row), 3 + row % 3);
  }
}

TEST_F(QueryTileTest, OffsetsHave64Bits) {
  a_.q.token_stride = int64_t{1} << 40;
  const QueryTile tile = QueryTileOf(a_, 1, 5, 1, 0, 64);
  EXPECT_EQ(tile.Offset(a_.q, 16), (int64_t{29} << 40) + 50);
}

TEST_F(QueryTileTest, RowsSeeWhatTheirQuerySees) {
  for (const Mask& mask : {Mask::None(), Mask::Causal(), Mask::SlidingWindow(4, 2)}) {
    for (const int32_t pack : {1, 3}) {
      const QueryTile tile = QueryTileOf(a_, 1, 0, pack, 0, 24);
      for (int64_t row = tile.begin; row < tile.end; ++row) {
        const KvRange expected = VisibleKv(mask, tile.QueryOf(row), 17, 41);
        const KvRange got = tile.Visible(mask, row);
        EXPECT_EQ(got.begin, expected.begin) << row;
        EXPECT_EQ(got.end, expected.end) << row;
      }
      // Rows that only fill up a tile see nothing.
      for (int64_t row = tile.end; row < tile.end + 3; ++row) {
        const KvRange got = tile.Visible(mask, row);
        EXPECT_EQ(got.begin, got.end) << row;
      }
    }
  }
}

TEST_F(QueryTileTest, WalksTheTilesOfItsQueries) {
  for (const int32_t pack : {1, 3}) {
    for (const int64_t rows : {8, 16}) {
      for (int64_t index = 0; index < 8; ++index) {
        const QueryTile tile = QueryTileOf(a_, 1, 0, pack, index, rows);
        const KvTiles got = tile.Tiles(Mask::SlidingWindow(6, 1), 8);
        if (tile.begin >= tile.end) {
          EXPECT_EQ(got.Count(8), 0);
          continue;
        }
        const KvTiles expected = KvTilesOf(Mask::SlidingWindow(6, 1), tile.begin / pack,
                                           (tile.end - 1) / pack + 1, 17, 41, 8);
        EXPECT_EQ(got.begin, expected.begin);
        EXPECT_EQ(got.full_begin, expected.full_begin);
        EXPECT_EQ(got.full_end, expected.full_end);
        EXPECT_EQ(got.end, expected.end);
      }
    }
  }
}

TEST_F(QueryTileTest, BeyondTheSequenceIsEmpty) {
  for (const int32_t pack : {1, 3}) {
    const QueryTile tile = QueryTileOf(a_, 0, 0, pack, 1000, 64);
    EXPECT_GE(tile.begin, tile.end);
    EXPECT_EQ(tile.Tiles(Mask::None(), 16).Count(16), 0);
  }
}

}  // namespace
}  // namespace attnlab::device
