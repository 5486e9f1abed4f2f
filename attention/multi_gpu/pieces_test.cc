#include "attention/multi_gpu/pieces.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::multi_gpu {
namespace {

TEST(PiecesTest, EachRowBelongsToOneRank) {
  for (const Order order : {Order::kInOrder, Order::kZigzag}) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const int64_t length : {0, 1, 5, 16, 33, 100}) {
        std::vector<int> times(length);
        for (int rank = 0; rank < ranks; ++rank) {
          for (const Chunk& c : ChunksOf(length, ranks, rank, order)) {
            for (int64_t i = c.begin; i < c.end; ++i) ++times[i];
          }
        }
        EXPECT_EQ(times, std::vector<int>(length, 1)) << ranks << " " << length;
      }
    }
  }
  const int64_t huge = INT64_MAX / 2;
  EXPECT_EQ(ChunksOf(huge, 8, 7, Order::kZigzag)[0].end - huge / 16 * 8, 8);
}

TEST(PiecesTest, ZigzagGivesAllRanksTheSameWork) {
  for (int rank = 0; rank < 4; ++rank) {
    int64_t pairs = 0;
    for (const Chunk& c : ChunksOf(64, 4, rank, Order::kZigzag)) {
      for (int64_t row = c.begin; row < c.end; ++row) pairs += row + 1;
    }
    EXPECT_EQ(pairs, 64 * 65 / 2 / 4);
  }
}

// Every query and key of small chunks, with every kind of mask.
TEST(PiecesTest, APieceSeesWhatTheWholeSees) {
  std::vector<Mask> masks = {Mask::None(), Mask::Causal()};
  for (const int64_t left : {0, 1, 4, 50}) {
    for (const int64_t right : {0, 2, 50}) masks.push_back(Mask::SlidingWindow(left, right));
  }
  masks.push_back(Mask::SlidingWindow(int64_t{1} << 40, int64_t{1} << 40));
  int seen_somewhere = 0;
  for (const Mask& mask : masks) {
    for (const auto& [q_len, kv_len] : {std::pair{9, 9}, {9, 14}, {14, 9}, {1, 7}}) {
      for (int64_t q = 0; q <= q_len; q += 3) {
        for (int64_t kv = 0; kv <= kv_len; kv += 3) {
          for (const int64_t size : {0, 2, 5}) {
            const Chunk rows = {q, std::min<int64_t>(q + 4, q_len)},
                        keys = {kv, std::min<int64_t>(kv + size, kv_len)};
            const Piece piece = PieceOf(mask, q_len, kv_len, rows, keys);
            EXPECT_GE(piece.mask.left, 0);
            EXPECT_GE(piece.mask.right, 0);
            for (int64_t i = 0; i < rows.size(); ++i) {
              const KvRange whole = VisibleKv(mask, rows.begin + i, q_len, kv_len);
              KvRange part =
                  i < piece.rows ? VisibleKv(piece.mask, i, piece.rows, piece.keys) : KvRange{};
              part.begin += piece.first_key, part.end += piece.first_key;
              for (int64_t j = 0; j < keys.size(); ++j) {
                const int64_t key = keys.begin + j;
                const bool seen = key >= whole.begin && key < whole.end;
                seen_somewhere += seen;
                ASSERT_EQ(seen, j >= part.begin && j < part.end)
                    << q_len << " " << kv_len << " row " << rows.begin + i << " key " << key;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(seen_somewhere, 1000);
}

}  // namespace
}  // namespace attnlab::multi_gpu
