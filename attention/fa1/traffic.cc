#include "attention/fa1/traffic.h"

#include <algorithm>
#include <cstdint>

#include "attention/dtype.h"
#include "attention/mask.h"

namespace attnlab::fa1 {

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const device::CudaCoreTile& tile) {
  Traffic traffic = CompulsoryTraffic(p);
  const int64_t kv_row = (p.d + p.dv) * SizeOf(p.dtype);
  // A large tile leaves a multiprocessor no room for a second block, and of the small ones no more
  // than a few run there, in step.
  const int64_t blocks = std::min<int64_t>(std::max(device.multiprocessors, 1), p.b * p.hq);
  const int64_t kv_heads = (blocks + p.GroupSize() - 1) / p.GroupSize();
  const double at_a_time =
      static_cast<double>(kv_heads) * static_cast<double>(p.skv) * static_cast<double>(kv_row);
  if (at_a_time <= static_cast<double>(device.last_level_cache_bytes)) return traffic;

  // Keys that the tiles of one head read, less those that are read at least once.
  double keys = 0;
  for (int64_t begin = 0; begin < p.sq; begin += tile.rows) {
    const int64_t end = std::min<int64_t>(p.sq, begin + tile.rows);
    const KvRange range = VisibleKvOfRows(p.mask, begin, end, p.sq, p.skv);
    keys += static_cast<double>(range.end - range.begin);
  }
  const KvRange once = VisibleKvOfRows(p.mask, 0, p.sq, p.sq, p.skv);
  keys -= static_cast<double>(once.end - once.begin);
  // Bytes that are read again can be more than an int64 counts.
  const double again = static_cast<double>(p.b * p.hkv) * static_cast<double>(kv_row) * keys;
  traffic.bytes_read += static_cast<int64_t>(std::min(again, 0x1p61));
  return traffic;
}

}  // namespace attnlab::fa1
