#include "attention/core/mask.h"

#include <vector>

#include "gtest/gtest.h"

namespace attnlab {
namespace {

// The definition, one pair at a time.
bool Sees(const Mask& mask, int64_t row, int64_t key, int64_t q_len, int64_t kv_len) {
  const int64_t position = row + kv_len - q_len;
  switch (mask.kind) {
    case Mask::Kind::kNone:
      return true;
    case Mask::Kind::kCausal:
      return key <= position;
    case Mask::Kind::kSlidingWindow:
      return key >= position - mask.left && key <= position + mask.right;
  }
  return false;
}

std::vector<Mask> Masks() {
  std::vector<Mask> masks = {Mask::None(), Mask::Causal()};
  for (int64_t left : {0, 1, 3, 50}) {
    for (int64_t right : {0, 1, 4, 50}) masks.push_back(Mask::SlidingWindow(left, right));
  }
  return masks;
}

TEST(MaskTest, RangesAndCountsAgreeWithTheDefinition) {
  for (const Mask& mask : Masks()) {
    for (int64_t q_len : {0, 1, 2, 7, 12}) {
      for (int64_t kv_len : {0, 1, 2, 7, 12}) {
        int64_t pairs = 0;
        for (int64_t row = 0; row < q_len; ++row) {
          const KvRange range = VisibleKv(mask, row, q_len, kv_len);
          for (int64_t key = 0; key < kv_len; ++key) {
            const bool sees = Sees(mask, row, key, q_len, kv_len);
            pairs += sees;
            EXPECT_EQ(key >= range.begin && key < range.end, sees)
                << "row " << row << " of " << q_len << ", key " << key << " of " << kv_len;
          }
        }
        EXPECT_EQ(VisiblePairs(mask, q_len, kv_len), pairs) << q_len << " x " << kv_len;
      }
    }
  }
}

TEST(MaskTest, RangeOfRowsHoldsWhatTheRowsSee) {
  constexpr int64_t kQ = 9, kKv = 7;
  for (const Mask& mask : Masks()) {
    for (int64_t begin = 0; begin <= kQ; ++begin) {
      for (int64_t end = begin; end <= kQ; ++end) {
        const KvRange rows = VisibleKvOfRows(mask, begin, end, kQ, kKv);
        for (int64_t key = 0; key < kKv; ++key) {
          bool seen = false;
          for (int64_t row = begin; row < end; ++row) {
            seen = seen || Sees(mask, row, key, kQ, kKv);
          }
          if (seen) {
            EXPECT_TRUE(key >= rows.begin && key < rows.end);
          }
        }
      }
    }
  }
}

TEST(MaskTest, CountsDoNotOverflow) {
  const int64_t n = (int64_t{1} << 31) - 1;
  EXPECT_EQ(VisiblePairs(Mask::None(), n, n), n * n);
  EXPECT_EQ(VisiblePairs(Mask::Causal(), n, n), n * (n + 1) / 2);
  EXPECT_EQ(VisiblePairs(Mask::SlidingWindow(n, n), n, n), n * n);
  EXPECT_EQ(VisiblePairs(Mask::SlidingWindow(0, 0), n, n), n);
}

}  // namespace
}  // namespace attnlab
