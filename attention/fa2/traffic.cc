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

// Queries of each unit: those in groups, or those whose tiles come at the end.
struct Queries {
  int64_t begin = 0, end = 0;
};

struct Walk {
  double keys = 0;     // of all rounds
  int64_t widest = 0;  // that a round sees, at most
};

// Of a head, in rounds of so many rows, the last ones first. More than some ten thousand rounds are
// taken several at a time, which see hardly more than each of them.
Walk WalkOf(const AttentionProblem& p, const Queries& queries, int64_t rows) {
  constexpr int64_t kSteps = 1 << 14;
  Walk walk;
  const int64_t rounds = (queries.end - queries.begin + rows - 1) / rows;
  const int64_t at_once = (rounds + kSteps - 1) / kSteps;
  for (int64_t round = 0; round < rounds; round += at_once) {
    const int64_t these = std::min(at_once, rounds - round);
    const int64_t end = queries.end - round * rows;
    const int64_t begin = std::max(queries.begin, end - these * rows);
    const KvRange range = VisibleKvOfRows(p.mask, begin, end, p.sq, p.skv);
    walk.keys += static_cast<double>(these) * static_cast<double>(range.end - range.begin);
    walk.widest = std::max(walk.widest, range.end - range.begin);
  }
  return walk;
}

double KeysSeen(const AttentionProblem& p, const Queries& queries) {
  const KvRange seen = VisibleKvOfRows(p.mask, queries.begin, queries.end, p.sq, p.skv);
  return static_cast<double>(seen.end - seen.begin);
}

double BytesOfKey(const AttentionProblem& p) {
  return static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
}

// Blocks that run at a time.
int64_t Together(const DeviceInfo& device, const Options& options) {
  return std::max<int64_t>(1, int64_t{device.multiprocessors} * options.blocks);
}

// Units that have a KV head in common.
int64_t Sharing(const AttentionProblem& p, const Grid& grid) { return p.GroupSize() / grid.pack; }

Queries AtTheEnd(const AttentionProblem& p, const Options& options) {
  const Grid& grid = options.grid;
  return {0, QueriesOf(grid.end_tiles, options.Rows(), grid.pack, p.sq)};
}

// Rows of K and V that come from memory.
struct Reads {
  double in_step = 0, apart = 0;  // apart: where the blocks of a head may be
};

// Of groups (grid.h) of `group` units each, which have `units` in all.
Reads ReadsOf(const AttentionProblem& p, const DeviceInfo& device, const Options& options,
              const Queries& queries, int64_t group, int64_t units) {
  const Grid& grid = options.grid;
  const int64_t together = Together(device, options), sharing = Sharing(p, grid);
  const int64_t rows = std::max<int64_t>(1, together * options.Rows() / (group * grid.pack));
  const int64_t tiles =
      ((queries.end - queries.begin) * grid.pack + options.Rows() - 1) / options.Rows();
  const Walk round = WalkOf(p, queries, rows);
  const double heads = static_cast<double>(units) / static_cast<double>(sharing);

  const double kv_heads = std::ceil(static_cast<double>(group) / static_cast<double>(sharing));
  const double room = L2BytesFor(device, static_cast<double>(together));
  Reads reads;
  reads.in_step = heads * KeysSeen(p, queries);
  if (kv_heads * BytesOfKey(p) * static_cast<double>(round.widest) > room) {
    // Units that share a KV head and do not run side by side walk it one after the other.
    const int64_t beside = std::max(group, together / std::max<int64_t>(1, tiles));
    const double walks = std::max(1.0, static_cast<double>(sharing) / static_cast<double>(beside));
    reads.in_step = std::max(reads.in_step, heads * walks * round.keys);
  }
  reads.apart = reads.in_step;
  // Of a head with at least half as many tiles as run at a time, the last ones run beside the first
  // ones of the next head, half a round of each, say. Where what both see does not fit, nothing
  // keeps blocks in step; of units that share a KV head, those of its end and of the next one's
  // beginning.
  if (group == 1 && 2 * tiles >= together && int64_t{grid.units} > sharing) {
    const Walk half = WalkOf(p, queries, std::max<int64_t>(1, rows / 2));
    if (2 * BytesOfKey(p) * static_cast<double>(half.widest) > room) {
      const Walk tile = WalkOf(p, queries, std::max<int64_t>(1, options.Rows() / grid.pack));
      const double part = std::min(1.0, 2 / static_cast<double>(sharing));
      const double each = static_cast<double>(units) * tile.keys;
      reads.apart += part * std::max(0.0, each - reads.in_step);
    }
  }
  return reads;
}

// Of the tiles at the end, which are like one group of all units. What they need of the last groups
// before them is in L2 still: of as many, with all of their K and V, as it has room for beside what
// is needed of the others.
double ReadsAtTheEnd(const AttentionProblem& p, const DeviceInfo& device, const Options& options) {
  const Grid& grid = options.grid;
  const Queries queries = AtTheEnd(p, options);
  if (queries.end == 0) return 0;
  const Reads all = ReadsOf(p, device, options, queries, grid.units, grid.units);
  const double room = L2BytesFor(device, static_cast<double>(Together(device, options)));
  const double room_keys = room / BytesOfKey(p) * static_cast<double>(Sharing(p, grid));
  const double group = grid.group_units[1].Value(), units = grid.units;
  const double whole = KeysSeen(p, {queries.end, p.sq}), end = KeysSeen(p, queries);
  const double groups = std::floor((room_keys - units * end) / std::max(whole - end, 1.0) / group);
  const double found = std::clamp(groups * group, 0.0, units);
  return all.in_step * (1 - found / units);
}

// With L2 as the device says.
Traffic TrafficOf(const AttentionProblem& p, const DeviceInfo& device, const Options& options) {
  Traffic traffic = CompulsoryTraffic(p);
  const Grid& grid = options.grid;
  const double once = static_cast<double>(p.b * p.hkv) * KeysSeen(p, {0, p.sq});
  const Queries in_groups = {AtTheEnd(p, options).end, p.sq};
  Reads all;
  for (const bool smaller : {false, true}) {
    const int64_t units = smaller ? int64_t{grid.units} - grid.larger_units : grid.larger_units;
    if (units == 0) continue;
    const Reads reads =
        ReadsOf(p, device, options, in_groups, grid.group_units[smaller].Value(), units);
    all.in_step += reads.in_step;
    all.apart += reads.apart;
  }
  const double at_the_end = ReadsAtTheEnd(p, device, options);
  all.in_step += at_the_end;
  all.apart += at_the_end;
  const auto again = [&](double keys) {
    return WholeBytes(BytesOfKey(p) * std::max(keys - once, 0.0));
  };
  traffic.reads_between = {traffic.bytes_read + again(all.in_step),
                           traffic.bytes_read + again(all.apart)};
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
