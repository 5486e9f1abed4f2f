#include "attention/warp_specialized/portable_options.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/supports.h"

namespace attnlab::warp_specialized {
namespace {

int CeilDivide(int64_t x, int64_t by) { return static_cast<int>((x + by - 1) / by); }

absl::Status CheckProblem(const AttentionProblem& p, int capability) {
  for (const bool is_d : {true, false}) {
    const int64_t dim = is_d ? p.d : p.dv;
    if (dim <= kMostPortableDim) continue;
    return absl::UnimplementedError(absl::StrCat(is_d ? "d" : "dv", ": ", dim, " is above ",
                                                 kMostPortableDim,
                                                 ", the largest head dim of this kernel"));
  }
  if (p.dtype == DType::kFloat32) return absl::OkStatus();
  if (p.dtype == DType::kBFloat16 && capability < 80) {
    return absl::UnimplementedError(
        absl::StrCat("dtype: tensor cores multiply bf16 from compute capability 8.0 on; the code "
                     "that runs here is for ",
                     capability / 10, ".", capability % 10));
  }
  return CheckTensorCoreKeys(p, capability);
}

// What the configuration asks for. 0: it leaves that open.
struct Wanted {
  int tile_m = 0, tile_n = 0, block = 0, loaders = 0, stages = 0;
};

// Whether the tile has as many consumers as the configuration asks for or, if that leaves it open, is
// for queries of this length.
bool Suits(const PortableTile& tile, const Wanted& wanted, int64_t sq) {
  const int loaders = wanted.loaders != 0 ? wanted.loaders : tile.loaders;
  const int consumers = wanted.tile_m != 0  ? wanted.tile_m / tile.rows * tile.sharing
                        : wanted.block != 0 ? wanted.block / 32 - loaders
                                            : 0;
  if (loaders + tile.fewest_consumers > tile.most_warps) return false;
  return consumers == 0 ? sq >= tile.shortest_query
                        : consumers >= tile.fewest_consumers && consumers <= tile.most_consumers;
}

// The compiled tiles of the problem's dtype and padded head dim.
std::vector<PortableTile> TilesFor(const AttentionProblem& p, const Wanted& wanted) {
  std::vector<PortableTile> tiles;
  for (const PortableTile& tile : kPortableTiles) {
    if (tile.fp32 != (p.dtype == DType::kFloat32) || tile.head_dim < std::max(p.d, p.dv)) continue;
    if (tile.shortest_query > 0 && !Suits(tile, wanted, p.sq)) continue;
    if (tiles.empty() || tile.head_dim == tiles[0].head_dim) tiles.push_back(tile);
  }
  // Tiles for long queries come first, and those after them take what is left.
  if (tiles.size() > 1 && tiles[0].shortest_query > 0) tiles.resize(1);
  return tiles;
}

absl::StatusOr<Wanted> WantedBy(const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({"tile_m", "tile_n", "block", "loaders", "stages"});
      !s.ok()) {
    return s;
  }
  Wanted wanted;
  const struct {
    const char* key;
    int* value;
  } kKeys[] = {{"tile_m", &wanted.tile_m},
               {"tile_n", &wanted.tile_n},
               {"block", &wanted.block},
               {"loaders", &wanted.loaders},
               {"stages", &wanted.stages}};
  for (const auto& [key, value] : kKeys) {
    const absl::StatusOr<int64_t> integer = config.GetInteger(key, 0, 1, 1 << 20);
    if (!integer.ok()) return integer.status();
    *value = static_cast<int>(*integer);
  }
  return wanted;
}

absl::Status Invalid(const PortableTile& tile, const char* key, int value,
                     const std::string& instead) {
  return absl::InvalidArgumentError(absl::StrCat(
      "config: ", key, "=", value, " does not exist for ", tile.fp32 ? "fp32" : "16 bits",
      " and head dims up to ", tile.head_dim, "; ", instead));
}

// The tiles with the configuration's tile_n.
absl::StatusOr<std::vector<PortableTile>> TilesOfKeys(std::vector<PortableTile> tiles, int tile_n) {
  if (tile_n == 0) return tiles;
  std::vector<int> keys;
  std::vector<PortableTile> named;
  for (const PortableTile& tile : tiles) {
    keys.push_back(tile.keys);
    if (tile.keys == tile_n) named.push_back(tile);
  }
  if (!named.empty()) return named;
  return Invalid(tiles[0], "tile_n", tile_n, absl::StrCat("there is ", absl::StrJoin(keys, ", ")));
}

// How many consumers and loaders the configuration asks for. If neither tile_m nor block says how
// many consumers, as many as `by_default`, or fewer if there are many loaders.
absl::StatusOr<PortableBlock> WarpsFor(const PortableTile& tile, const Wanted& wanted,
                                       int by_default) {
  const int least_rows = tile.RowsOf(tile.fewest_consumers);
  const int most_rows = tile.RowsOf(tile.most_consumers);
  if (wanted.tile_m % tile.rows != 0 || wanted.tile_m > most_rows) {
    return Invalid(tile, "tile_m", wanted.tile_m,
                   least_rows == most_rows ? absl::StrCat("there is ", least_rows)
                                           : absl::StrCat("there are the multiples of ", tile.rows,
                                                          " from ", least_rows, " to ", most_rows));
  }
  if (wanted.block % 32 != 0) {
    return Invalid(tile, "block", wanted.block, "threads come in warps of 32");
  }
  const bool fixed = wanted.tile_m != 0 || least_rows == most_rows;
  PortableBlock block;
  block.loaders = wanted.loaders != 0 ? wanted.loaders : tile.loaders;
  block.consumers = wanted.tile_m != 0 ? wanted.tile_m / tile.rows * tile.sharing : by_default;
  if (wanted.block != 0 && !fixed) {
    block.consumers = wanted.block / 32 - block.loaders;
  } else if (wanted.block != 0 && wanted.loaders == 0) {
    block.loaders = wanted.block / 32 - block.consumers;
  } else if (!fixed) {
    block.consumers = std::min(block.consumers, tile.most_warps - block.loaders);
    block.consumers -= block.consumers % tile.sharing;
  }
  const bool whole = block.consumers % tile.sharing == 0;
  if (whole && block.loaders >= 1 && block.loaders <= tile.most_stages &&
      block.consumers >= tile.fewest_consumers && block.consumers <= tile.most_consumers &&
      block.Threads() <= 32 * tile.most_warps &&
      (wanted.block == 0 || block.Threads() == wanted.block)) {
    return block;
  }
  const std::string limit =
      absl::StrCat("a block has ", 32 * (tile.fewest_consumers + 1), " to ", 32 * tile.most_warps,
                   " threads: ", tile.sharing, " warps for each ", tile.rows,
                   " rows of tile_m, and 1 to ", tile.most_stages, " loaders");
  if (wanted.block != 0) return Invalid(tile, "block", wanted.block, limit);
  if (wanted.loaders != 0) return Invalid(tile, "loaders", wanted.loaders, limit);
  return Invalid(tile, "tile_m", wanted.tile_m, limit);
}

// As few tiles as there can be, but no larger than they must be for that.
int ConsumersFor(const PortableTile& tile, int64_t rows) {
  if (tile.fewest_consumers == tile.most_consumers) return tile.consumers;
  const int64_t groups = std::max<int64_t>(1, (rows + tile.rows - 1) / tile.rows);
  const int64_t most = tile.consumers / tile.sharing;
  const int64_t tiles = CeilDivide(groups, most);
  return std::max(tile.fewest_consumers, CeilDivide(groups, tiles) * tile.sharing);
}

// The first tile that fits, with as many consumers as possible and as many stages as fit. If the
// device's shared memory is unknown, everything fits.
absl::Status ChooseBlock(const std::vector<PortableTile>& tiles, const Wanted& wanted, int64_t rows,
                         const DeviceInfo& device, PortableOptions* options) {
  const int64_t there = device.shared_memory_per_block;
  const int most_stages = tiles[0].most_stages;
  if (wanted.stages != 0 && (wanted.stages < kFewestStages || wanted.stages > most_stages)) {
    return Invalid(tiles[0], "stages", wanted.stages,
                   absl::StrCat("there are ", kFewestStages, " to ", most_stages));
  }
  absl::Status status;
  int consumers = ConsumersFor(tiles[0], rows);
  for (; consumers >= tiles[0].fewest_consumers; consumers -= tiles[0].sharing) {
    for (const PortableTile& tile : tiles) {
      absl::StatusOr<PortableBlock> block = WarpsFor(tile, wanted, consumers);
      if (!block.ok()) return block.status();
      const int loaders = block->loaders;
      if (wanted.stages % loaders != 0) {
        return Invalid(tile, "stages", wanted.stages,
                       absl::StrCat("there are multiples of loaders=", loaders));
      }
      const int fewest = wanted.stages != 0 ? wanted.stages : std::max(kFewestStages, loaders);
      block->stages = wanted.stages != 0 ? wanted.stages : most_stages / loaders * loaders;
      while (there != 0 && block->stages > fewest && tile.shared_bytes(*block) > there) {
        block->stages -= loaders;
      }
      if (there == 0 || tile.shared_bytes(*block) <= there) {
        options->tile = tile;
        options->block = *block;
        return absl::OkStatus();
      }
      status = absl::ResourceExhaustedError(absl::StrCat(
          "config: tile_m=", tile.RowsOf(block->consumers), ",tile_n=", tile.keys,
          ",stages=", block->stages, " needs ", tile.shared_bytes(*block),
          " bytes of shared memory per block, but ", ToString(device.device), " has ", there));
    }
  }
  return status;
}

// Blocks that run at a time.
int64_t BlocksTogether(const DeviceInfo& device, const PortableOptions& o) {
  int64_t blocks = std::max(1, 32 * o.tile.most_warps / o.block.Threads());
  if (device.shared_memory_per_block != 0) {
    // A multiprocessor has 1 KiB more than a block may have, and each block takes 1 KiB more.
    blocks = std::min<int64_t>(
        blocks, (device.shared_memory_per_block + 1024) / (o.tile.shared_bytes(o.block) + 1024));
  }
  return std::max<int64_t>(1, blocks) * std::max(1, device.multiprocessors);
}

// The groups of device/tile_order.h. Under a mask, a group has as many blocks as run at a time, and
// its K and V take at most half of the L2 cache.
int64_t GroupsOf(const AttentionProblem& p, const DeviceInfo& device, const PortableOptions& o,
                 int64_t units, int64_t tiles, int pack) {
  if (p.mask == Mask::None()) return std::max<int64_t>(1, units);
  const double rounds = std::round(static_cast<double>(units * tiles) /
                                   static_cast<double>(BlocksTogether(device, o)));
  const double kv_bytes =
      static_cast<double>(p.skv) * static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
  const double heads =
      std::floor(static_cast<double>(device.last_level_cache_bytes) / 2 / std::max(kv_bytes, 1.0));
  const double fit = std::max(1.0, heads) * static_cast<double>(pack == 1 ? p.GroupSize() : 1);
  const double groups = std::max(rounds, std::ceil(static_cast<double>(units) / fit));
  return std::max<int64_t>(1, std::min(units, static_cast<int64_t>(groups)));
}

absl::Status MakeGridOf(const AttentionProblem& p, const DeviceInfo& device, bool packed,
                        PortableOptions* options) {
  const int32_t pack = packed ? static_cast<int32_t>(p.GroupSize()) : 1;
  const int64_t heads = p.hq / pack, units = p.b * heads;
  const int64_t tiles = (p.sq * pack + options->Rows() - 1) / options->Rows();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (tiles > 0 && units > kMost / tiles) {
    return absl::UnimplementedError(absl::StrCat("b: ", units, " heads of ", tiles,
                                                 " query tiles each are more than ", kMost,
                                                 " blocks, the limit of a launch"));
  }
  options->grid = device::MakeGrid(
      static_cast<uint32_t>(units), static_cast<uint32_t>(heads), static_cast<uint32_t>(tiles),
      static_cast<uint32_t>(GroupsOf(p, device, *options, units, tiles, pack)), pack);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> PortableConfigKeys() {
  return {
      "tile_m: query rows per tile: 32 per consumer warp, or per pair of them above head dim 128 "
      "[the most that a block has registers for]",
      "tile_n: keys per tile: 64, and 32 above head dim 128; for fp32 that of the tile [64]",
      "block: threads of a block: 32 per consumer or loader [those of tile_m and loaders]",
      "loaders: producer warps [1; 2 above head dim 128 and for fp32]",
      "stages: tiles of K or V in shared memory: 2 to 6, a multiple of loaders; for fp32 2 [as "
      "many as fit]",
  };
}

absl::StatusOr<PortableOptions> PortableOptionsFor(const AttentionProblem& p,
                                                   const DeviceInfo& device, int code_capability,
                                                   const LaunchConfig& config) {
  const absl::StatusOr<Wanted> wanted = WantedBy(config);
  if (!wanted.ok()) return wanted.status();
  const int capability = std::min(device.compute_capability, code_capability);
  if (absl::Status s = CheckProblem(p, capability); !s.ok()) return s;
  const absl::StatusOr<std::vector<PortableTile>> tiles =
      TilesOfKeys(TilesFor(p, *wanted), wanted->tile_n);
  if (!tiles.ok()) return tiles.status();
  // Query heads that share a KV head share tiles if the query is short.
  const PortableTile& first = tiles->front();
  const bool packed = p.GroupSize() > 1 && p.sq < first.RowsOf(first.consumers);
  PortableOptions options;
  const int64_t rows = packed ? p.sq * p.GroupSize() : p.sq;
  if (absl::Status s = ChooseBlock(*tiles, *wanted, rows, device, &options); !s.ok()) return s;
  if (absl::Status s = MakeGridOf(p, device, packed, &options); !s.ok()) return s;
  return options;
}

}  // namespace attnlab::warp_specialized
