#include "attention/fa2/traffic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/dtype.h"
#include "attention/fa2/grid.h"
#include "attention/l2_reuse.h"
#include "attention/mask.h"

namespace attnlab::fa2 {
namespace {

struct Walk {
  double keys = 0;     // of all rounds
  int64_t widest = 0;  // that a round sees, at most
};

// Of a head, in rounds of so many rows, the last ones first.
Walk WalkOf(const AttentionProblem& p, int64_t rows) {
  Walk walk;
  for (int64_t end = p.sq; end > 0; end -= rows) {
    const KvRange range =
        VisibleKvOfRows(p.mask, std::max<int64_t>(0, end - rows), end, p.sq, p.skv);
    walk.keys += static_cast<double>(range.end - range.begin);
    walk.widest = std::max(walk.widest, range.end - range.begin);
  }
  return walk;
}

// Rows of K and V that come from memory.
struct Reads {
  double in_step = 0, apart = 0;  // apart: where the blocks of a head may be
};

// Of groups (grid.h) of `group` units each, which have `units` in all.
Reads ReadsOf(const AttentionProblem& p, const DeviceInfo& device, const Options& options,
              int64_t group, int64_t units) {
  const Grid& grid = options.grid;
  const int64_t together = std::max<int64_t>(1, int64_t{device.multiprocessors} * options.blocks);
  const int64_t sharing = p.GroupSize() / grid.pack;  // units that have a KV head in common
  const int64_t rows = std::max<int64_t>(1, together * options.Rows() / (group * grid.pack));
  const Walk round = WalkOf(p, rows);
  const KvRange seen = VisibleKvOfRows(p.mask, 0, p.sq, p.sq, p.skv);
  const double heads = static_cast<double>(units) / static_cast<double>(sharing);

  const double kv_heads = std::ceil(static_cast<double>(group) / static_cast<double>(sharing));
  const double kv_row = static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
  const double room = L2BytesFor(device, static_cast<double>(together));
  Reads reads;
  reads.in_step = heads * static_cast<double>(seen.end - seen.begin);
  if (kv_heads * kv_row * static_cast<double>(round.widest) > room) {
    // Units that share a KV head and do not run side by side walk it one after the other.
    const int64_t beside = std::max(group, together / std::max<int64_t>(1, grid.tiles));
    const double walks = std::max(1.0, static_cast<double>(sharing) / static_cast<double>(beside));
    reads.in_step = std::max(reads.in_step, heads * walks * round.keys);
  }
  reads.apart = reads.in_step;
  // Of a head with about as many tiles as run at a time, or more, the last ones run beside the
  // first ones of the next head, half a round of each, say. Where what both see does not fit,
  // nothing keeps blocks in step.
  if (group == 1 && 2 * int64_t{grid.tiles} >= together) {
    const Walk half = WalkOf(p, std::max<int64_t>(1, rows / 2));
    if (2 * kv_row * static_cast<double>(half.widest) > room) {
      const Walk tile = WalkOf(p, std::max<int64_t>(1, options.Rows() / grid.pack));
      reads.apart = std::max(reads.apart, static_cast<double>(units) * tile.keys);
    }
  }
  return reads;
}

// With L2 as the device says.
Traffic TrafficOf(const AttentionProblem& p, const DeviceInfo& device, const Options& options) {
  Traffic traffic = CompulsoryTraffic(p);
  const Grid& grid = options.grid;
  const KvRange seen = VisibleKvOfRows(p.mask, 0, p.sq, p.sq, p.skv);
  const double once = static_cast<double>(p.b * p.hkv) * static_cast<double>(seen.end - seen.begin);
  Reads all;
  for (const bool smaller : {false, true}) {
    const int64_t units = smaller ? int64_t{grid.units} - grid.larger_units : grid.larger_units;
    if (units == 0) continue;
    const Reads reads = ReadsOf(p, device, options, grid.group_units[smaller].Value(), units);
    all.in_step += reads.in_step;
    all.apart += reads.apart;
  }
  // Bytes that are read again can be more than an int64 counts.
  const auto again = [&](double keys) {
    const auto kv_row = static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
    return static_cast<int64_t>(std::min(kv_row * std::max(keys - once, 0.0), 0x1p61));
  };
  if (all.apart > all.in_step) {
    traffic.reads_between.emplace();
    traffic.reads_between->least = traffic.bytes_read + again(all.in_step);
    traffic.reads_between->most = traffic.bytes_read + again(all.apart);
  }
  traffic.bytes_read += again(all.in_step);
  return traffic;
}

}  // namespace

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const Options& options) {
  return WithL2InDoubt(device,
                       [&](const DeviceInfo& other) { return TrafficOf(p, other, options); });
}

}  // namespace attnlab::fa2
