#include "attention/fa2/traffic.h"

#include <algorithm>
#include <cstdint>

#include "attention/dtype.h"
#include "attention/l2_reuse.h"
#include "attention/mask.h"

namespace attnlab::fa2 {

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const Options& options) {
  Traffic traffic = CompulsoryTraffic(p);
  const double kv_row = static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
  const int64_t together = std::max<int64_t>(1, int64_t{device.multiprocessors} * options.blocks);
  if (static_cast<double>(p.skv) * kv_row <= L2BytesFor(device, static_cast<double>(together))) {
    return traffic;
  }
  // Rounds of the tiles of one head, the last ones first, and the keys that each walks.
  const int64_t rows_together = std::max<int64_t>(1, together * options.Rows() / options.grid.pack);
  double keys = 0;
  for (int64_t end = p.sq; end > 0; end -= rows_together) {
    const int64_t begin = std::max<int64_t>(0, end - rows_together);
    const KvRange range = VisibleKvOfRows(p.mask, begin, end, p.sq, p.skv);
    keys += static_cast<double>(range.end - range.begin);
  }
  const KvRange once = VisibleKvOfRows(p.mask, 0, p.sq, p.sq, p.skv);
  keys -= static_cast<double>(once.end - once.begin);
  // Bytes that are read again can be more than an int64 counts.
  const double again = static_cast<double>(p.b * p.hkv) * kv_row * std::max(keys, 0.0);
  traffic.bytes_read += static_cast<int64_t>(std::min(again, 0x1p61));
  return traffic;
}

}  // namespace attnlab::fa2
