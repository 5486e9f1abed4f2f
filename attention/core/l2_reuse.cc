#include "attention/core/l2_reuse.h"

#include <algorithm>

#include "attention/core/dtype.h"
#include "attention/core/mask.h"

namespace attnlab {

double L2BytesForAll(const DeviceInfo& device) {
  const auto bytes = static_cast<double>(device.last_level_cache_bytes);
  switch (device.compute_capability) {
    case 80:
    case 90:
    case 100:
    case 103:
      return bytes / 2;
    default:
      return bytes;
  }
}

void ReadAgain::Add(double bytes, double since) {
  if (since > l2_bytes_) bytes_ += bytes;
  if (since > l2_bytes_ / 2 && since < l2_bytes_ * 2) unclear_ += bytes;
}

void ReadAgain::AddKv(const AttentionProblem& p, const KvWalk& walk) {
  const auto key_bytes = static_cast<double>((p.d + p.dv) * SizeOf(p.KvDType()));
  // Above 2^14 steps we sample about that many, and each one stands for its neighbours.
  const int64_t steps = (p.sq - walk.first_row + walk.rows - 1) / walk.rows;
  const int64_t stride = 1 + steps / (1 << 14);
  for (int64_t step = 1; step < steps; step += stride) {
    const int64_t begin = walk.first_row + step * walk.rows;
    const KvRange before = VisibleKvOfRows(p.mask, begin - walk.rows, begin, p.sq, p.skv);
    const KvRange now =
        VisibleKvOfRows(p.mask, begin, std::min(p.sq, begin + walk.rows), p.sq, p.skv);
    const int64_t both = std::min(before.end, now.end) - std::max(before.begin, now.begin);
    const int64_t most = std::max(before.end - before.begin, now.end - now.begin);
    const double weight = static_cast<double>(std::min(stride, steps - step));
    const double bytes =
        weight * walk.heads * static_cast<double>(std::max<int64_t>(both, 0)) * key_bytes;
    const double read_before = bytes_;
    Add(bytes, walk.heads_at_a_time * static_cast<double>(most) * key_bytes);
    if (walk.shared && bytes_ > read_before) unclear_ += bytes;
  }
}

void ReadAgain::AddTo(Traffic* traffic) const {
  const double read = static_cast<double>(traffic->bytes_read) + bytes_;
  traffic->bytes_read = WholeBytes(read);
  traffic->l2_decides = unclear_ > 0.1 * read;
}

}  // namespace attnlab
