// Which keys a query may see.
//
// Query row i of a sequence with q_len queries and kv_len keys has the key position
// p = i + kv_len - q_len: the last query is aligned with the last key ("bottom right"), as in
// decoding with a cache. Row i sees the keys [p - left, p + right], clipped to [0, kv_len).
// A row may see no key (q_len > kv_len and causal): its output is 0 and its LSE minus infinity.
//
// Plain arithmetic without Abseil, so that device code can include it.
#ifndef ATTENTION_CORE_MASK_H_
#define ATTENTION_CORE_MASK_H_

#include <cstdint>

#include "attention/core/cxx17.h"

namespace attnlab {

struct Mask {
  enum class Kind {
    kNone,           // every key
    kCausal,         // left unbounded, right = 0
    kSlidingWindow,  // p itself, `left` keys before it and `right` keys after it
  };

  Kind kind = Kind::kNone;
  // Both at least 0; 0 unless the mask is kSlidingWindow. The "sliding_window = W" of Mistral and
  // others counts p itself, so it is SlidingWindow(W - 1, 0).
  int64_t left = 0;
  int64_t right = 0;

  static constexpr Mask None() { return {}; }
  static constexpr Mask Causal() { return {Kind::kCausal, 0, 0}; }
  static constexpr Mask SlidingWindow(int64_t left, int64_t right) {
    return {Kind::kSlidingWindow, left, right};
  }

  friend constexpr bool operator==(const Mask& a, const Mask& b) {
    return a.kind == b.kind && a.left == b.left && a.right == b.right;
  }
  friend constexpr bool operator!=(const Mask& a, const Mask& b) { return !(a == b); }
};

// Keys [begin, end); empty when begin == end.
struct KvRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The keys that query `row` of a sequence sees. 0 <= row < q_len.
constexpr KvRange VisibleKv(const Mask& mask, int64_t row, int64_t q_len, int64_t kv_len) {
  if (mask.kind == Mask::Kind::kNone) return {0, kv_len};
  const int64_t position = row + kv_len - q_len;
  const auto clamp = [kv_len](int64_t x) { return x < 0 ? 0 : (x > kv_len ? kv_len : x); };
  const int64_t end = clamp(position + mask.right + 1);
  return {mask.kind == Mask::Kind::kCausal ? 0 : clamp(position - mask.left), end};
}

// The keys that at least one row of [row_begin, row_end) sees. They are one range, because the
// ranges of successive rows move forward. Tiles outside it can be skipped.
constexpr KvRange VisibleKvOfRows(const Mask& mask, int64_t row_begin, int64_t row_end,
                                  int64_t q_len, int64_t kv_len) {
  if (row_begin >= row_end) return {0, 0};
  const int64_t begin = VisibleKv(mask, row_begin, q_len, kv_len).begin;
  const int64_t end = VisibleKv(mask, row_end - 1, q_len, kv_len).end;
  return begin < end ? KvRange{begin, end} : KvRange{0, 0};
}

// The number of (query, key) pairs that the mask lets through, in constant time.
int64_t VisiblePairs(const Mask& mask, int64_t q_len, int64_t kv_len);

}  // namespace attnlab

#endif  // ATTENTION_CORE_MASK_H_
