#include "attention/core/mask.h"

#include <algorithm>

namespace attnlab {
namespace {

// The sum of clamp(i + offset, 0, limit) over 0 <= i < count.
int64_t ClampedSum(int64_t offset, int64_t count, int64_t limit) {
  const int64_t rise = std::clamp<int64_t>(-offset, 0, count);           // first i at or above 0
  const int64_t top = std::clamp<int64_t>(limit - offset, rise, count);  // first i at the limit
  const int64_t rising = top - rise;
  return rising * (offset + rise) + rising * (rising - 1) / 2 + (count - top) * limit;
}

}  // namespace

int64_t VisiblePairs(const Mask& mask, int64_t q_len, int64_t kv_len) {
  if (mask.kind == Mask::Kind::kNone) return q_len * kv_len;
  const int64_t shift = kv_len - q_len;
  const int64_t ends = ClampedSum(shift + mask.right + 1, q_len, kv_len);
  if (mask.kind == Mask::Kind::kCausal) return ends;
  return ends - ClampedSum(shift - mask.left, q_len, kv_len);
}

}  // namespace attnlab
