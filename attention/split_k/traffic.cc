#include "attention/split_k/traffic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/core/dtype.h"
#include "attention/core/l2_reuse.h"
#include "attention/core/mask.h"
#include "attention/split_k/split.h"

namespace attnlab::split_k {
namespace {

// The rows of all parts of a unit's tiles. A tile with one part writes none. Of many tiles, some stand for their
// neighbours.
double RowsOfParts(const AttentionProblem& p, const Options& options) {
  const SplitGrid& grid = options.grid;
  const int64_t pack = grid.pack.Value(), tiles = grid.tiles.Value();
  const int64_t stride = 1 + tiles / (1 << 14);
  double rows = 0;
  for (int64_t tile = 0; tile < tiles; tile += stride) {
    const int64_t begin = tile * options.tile.rows,
                  end = std::min(p.sq * pack, begin + options.tile.rows);
    const uint32_t parts =
        std::min(grid.parts.Value(),
                 PartsOf(grid, KeysOf(p.mask, static_cast<int32_t>(begin / pack),
                                      static_cast<int32_t>((end - 1) / pack),
                                      static_cast<int32_t>(p.sq), static_cast<int32_t>(p.skv))));
    const int64_t times = std::min(stride, tiles - tile);
    if (parts > 1) rows += static_cast<double>(times * parts * (end - begin));
  }
  return rows;
}

}  // namespace

Traffic ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                        const Options& options) {
  Traffic traffic = CompulsoryTraffic(p);
  const SplitGrid& grid = options.grid;
  if (BlocksOf(grid) == 0) return traffic;
  ReadAgain again(L2BytesForAll(device));

  const auto units = static_cast<double>(grid.units), pack = static_cast<double>(grid.pack.Value());
  const double rows = options.tile.rows;
  // If more heads share K and V than a tile has rows, one query has several tiles.
  const double tiles_of_query = std::max(1.0, pack / rows);
  const double blocks = std::max(1, device.multiprocessors * options.tile.blocks);
  const double blocks_of_unit = grid.parts.Value() * static_cast<double>(grid.tiles.Value());
  KvWalk walk;
  walk.heads = units * tiles_of_query;
  walk.heads_at_a_time = std::min(units, std::ceil(blocks / blocks_of_unit));
  walk.rows = std::max<int64_t>(1, options.tile.rows / grid.pack.Value());
  walk.shared = true;  // tiles of a head run side by side
  again.AddKv(p, walk);
  const KvRange seen = VisibleKvOfRows(p.mask, 0, std::min(p.sq, walk.rows), p.sq, p.skv);
  const double seen_bytes = static_cast<double>(seen.end - seen.begin) *
                            static_cast<double>((p.d + p.dv) * SizeOf(p.KvDType()));
  again.Add(units * (tiles_of_query - 1) * seen_bytes, walk.heads_at_a_time * seen_bytes);

  if (grid.parts.Value() > 1 && grid.cluster_shift == 0) {
    const double bytes =
        units * RowsOfParts(p, options) * static_cast<double>(8 + 4 * ((p.dv + 3) / 4 * 4));
    traffic.bytes_written = WholeBytes(static_cast<double>(traffic.bytes_written) + bytes);
    again.Add(bytes, bytes);
  }
  again.AddTo(&traffic);
  return traffic;
}

}  // namespace attnlab::split_k
