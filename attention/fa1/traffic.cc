#include "attention/fa1/traffic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/dtype.h"
#include "attention/l2_reuse.h"
#include "attention/mask.h"

namespace attnlab::fa1 {

namespace {

// Keys that each KV head reads again, where so many blocks, one a query head, go from tile to tile
// together. What the tile before saw is in L2 still if all that those blocks have read since, and Q
// and O of their tiles, fits there.
double KeysReadAgain(const AttentionProblem& p, const DeviceInfo& device, int64_t tile_rows,
                     int64_t blocks) {
  const auto row = static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
  const int64_t group = std::min(p.GroupSize(), blocks);
  const double kv_heads = std::ceil(static_cast<double>(blocks) / static_cast<double>(group));
  const double l2_bytes = L2BytesFor(device, static_cast<double>(group));
  double again = 0;
  KvRange seen;  // by the tile before
  for (int64_t begin = 0; begin < p.sq; begin += tile_rows) {
    const int64_t end = std::min<int64_t>(p.sq, begin + tile_rows);
    const KvRange range = VisibleKvOfRows(p.mask, begin, end, p.sq, p.skv);
    const double used = row * (kv_heads * static_cast<double>(seen.end - seen.begin) +
                               static_cast<double>(blocks) * static_cast<double>(end - begin));
    const int64_t both = std::min(seen.end, range.end) - std::max(seen.begin, range.begin);
    if (used > l2_bytes && both > 0) again += static_cast<double>(both);
    seen = range;
  }
  return again;
}

// With L2 as the device says.
Traffic TrafficOf(const AttentionProblem& p, const DeviceInfo& device,
                  const device::CudaCoreTile& tile) {
  Traffic traffic = CompulsoryTraffic(p);
  // A large tile leaves a multiprocessor no room for a second block, and of the small ones no more
  // than a few run there, in step. Blocks are equally long, so the last of them run together, too.
  const int64_t blocks = p.b * p.hq, at_a_time = std::max(device.multiprocessors, 1);
  const int64_t last = blocks % at_a_time;
  double head_keys = 0;  // of query heads
  if (blocks > last) {
    head_keys +=
        static_cast<double>(blocks - last) * KeysReadAgain(p, device, tile.rows, at_a_time);
  }
  if (last > 0) {
    head_keys += static_cast<double>(last) * KeysReadAgain(p, device, tile.rows, last);
  }
  // By each head for itself, or by those of a group together.
  const auto group = static_cast<double>(p.GroupSize());
  const double alone = head_keys * static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
  const auto apart = WholeBytes(alone);
  const auto together = WholeBytes(alone / group);
  traffic.reads_between = {traffic.bytes_read + together, traffic.bytes_read + apart};
  traffic.bytes_read += together;
  return traffic;
}

}  // namespace

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const device::CudaCoreTile& tile) {
  return WithL2InDoubt(device, [&](const DeviceInfo& other) { return TrafficOf(p, other, tile); });
}

}  // namespace attnlab::fa1
