#include "attention/fa2/traffic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/core/dtype.h"
#include "attention/core/l2_reuse.h"
#include "attention/core/mask.h"

namespace attnlab::fa2 {
namespace {

// Units per group, on average.
double GroupOf(const Grid& grid) {
  const double larger = grid.larger_units, units = grid.units;
  return units /
         (larger / grid.group_units[0].Value() + (units - larger) / grid.group_units[1].Value());
}

}  // namespace

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const Options& options) {
  Traffic traffic = CompulsoryTraffic(p);
  const Grid& grid = options.grid;
  if (grid.units == 0 || grid.tiles == 0) return traffic;
  ReadAgain again(L2BytesForAll(device));

  const double blocks = std::max(1, device.multiprocessors * options.blocks);
  const double group = GroupOf(grid);
  KvWalk walk;
  walk.heads = static_cast<double>(p.b * p.hkv);
  walk.shared = true;
  // The next head begins while the last one of the group ends.
  walk.heads_at_a_time =
      std::min(walk.heads, std::ceil(group * grid.pack / static_cast<double>(p.GroupSize())) + 1);
  walk.first_row =
      std::min(p.sq, (int64_t{grid.end_tiles} * options.Rows() + grid.pack - 1) / grid.pack);
  walk.rows = static_cast<int64_t>(std::max(1.0, blocks * options.Rows() / (group * grid.pack)));
  again.AddKv(p, walk);

  if (walk.first_row > 0) {
    const auto bytes_of = [&](int64_t begin, int64_t end) {
      const KvRange keys = VisibleKvOfRows(p.mask, begin, end, p.sq, p.skv);
      return walk.heads * static_cast<double>((keys.end - keys.begin) * (p.d + p.dv)) *
             static_cast<double>(SizeOf(p.KvDType()));
    };
    again.Add(bytes_of(0, walk.first_row), /*since=*/bytes_of(0, p.sq));
  }
  again.AddTo(&traffic);
  return traffic;
}

}  // namespace attnlab::fa2
