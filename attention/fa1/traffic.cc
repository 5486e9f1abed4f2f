#include "attention/fa1/traffic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/dtype.h"
#include "attention/l2_reuse.h"
#include "attention/mask.h"

namespace attnlab::fa1 {

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const device::CudaCoreTile& tile) {
  Traffic traffic = CompulsoryTraffic(p);
  const int64_t kv_row = (p.d + p.dv) * SizeOf(p.dtype);
  // A large tile leaves a multiprocessor no room for a second block, and of the small ones no more
  // than a few run there, in step.
  const int64_t blocks = std::min<int64_t>(std::max(device.multiprocessors, 1), p.b * p.hq);
  const int64_t group = std::min(p.GroupSize(), blocks);
  const double kv_heads = std::ceil(static_cast<double>(blocks) / static_cast<double>(group));
  const double l2_bytes = L2BytesFor(device, static_cast<double>(group));

  // The heads under way go from tile to tile together. K and V that the tile before saw are there
  // still where all that those blocks have read since, and Q and O of their tiles, fit L2.
  double again = 0;
  KvRange seen;  // by the tile before
  for (int64_t begin = 0; begin < p.sq; begin += tile.rows) {
    const int64_t end = std::min<int64_t>(p.sq, begin + tile.rows);
    const KvRange range = VisibleKvOfRows(p.mask, begin, end, p.sq, p.skv);
    const double used = kv_heads * static_cast<double>((seen.end - seen.begin) * kv_row) +
                        static_cast<double>(blocks * (end - begin) * kv_row);
    const int64_t both = std::min(seen.end, range.end) - std::max(seen.begin, range.begin);
    if (used > l2_bytes && both > 0) again += static_cast<double>(both * kv_row);
    seen = range;
  }
  again *= static_cast<double>(p.b * p.hkv);
  // Bytes that are read again can be more than an int64 counts.
  traffic.bytes_read += static_cast<int64_t>(std::min(again, 0x1p61));
  return traffic;
}

}  // namespace attnlab::fa1
