#include "attention/device/grid_traffic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/core/dtype.h"
#include "attention/core/l2_reuse.h"
#include "attention/core/mask.h"
#include "attention/device/tile_order.h"

namespace attnlab::device {
namespace {

// Units per group, on average.
double GroupOf(const Grid& grid) {
  const double larger = grid.larger_units, units = grid.units;
  return units /
         (larger / grid.group_units[0].Value() + (units - larger) / grid.group_units[1].Value());
}

}  // namespace

Traffic GridTraffic(const AttentionProblem& p, const DeviceInfo& device, const Grid& grid, int rows,
                    int blocks_a_multiprocessor) {
  Traffic traffic = CompulsoryTraffic(p);
  if (grid.units == 0 || grid.tiles == 0) return traffic;
  ReadAgain again(L2BytesForAll(device));

  const auto queries_of = [&](int64_t tiles) { return QueriesOf(tiles, rows, grid.pack, p.sq); };
  const double blocks = std::max(1, device.multiprocessors * blocks_a_multiprocessor);
  const double group = GroupOf(grid);
  KvWalk walk;
  walk.heads = static_cast<double>(p.b * p.hkv);
  walk.shared = true;
  // The next head begins while the last one of the group ends.
  walk.heads_at_a_time =
      std::min(walk.heads, std::ceil(group * grid.pack / static_cast<double>(p.GroupSize())) + 1);
  walk.first_row = queries_of(grid.end_tiles);
  walk.rows = static_cast<int64_t>(std::max(1.0, blocks * rows / (group * grid.pack)));
  again.AddKv(p, walk);

  // The tiles after all groups run as rows of one tile per head, so all heads lie between two tiles
  // of a head. If they see more keys in a row than L2 holds, the next row reads its keys again.
  const auto seen_by = [&](int64_t queries) {
    const KvRange keys = VisibleKvOfRows(p.mask, 0, queries, p.sq, p.skv);
    return walk.heads * static_cast<double>((keys.end - keys.begin) * (p.d + p.dv)) *
           static_cast<double>(SizeOf(p.KvDType()));
  };
  double since = seen_by(p.sq);
  for (int64_t tiles = grid.end_tiles; tiles > 0; --tiles) {
    const double bytes = seen_by(queries_of(tiles));
    again.Add(bytes, since);
    since = bytes;
  }
  again.AddTo(&traffic);
  return traffic;
}

}  // namespace attnlab::device
