#include "attention/warp_specialized/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/supports.h"
#include "attention/warp_specialized/hopper_shape.h"

namespace attnlab::warp_specialized {
namespace {

template <typename... Shapes>
constexpr std::array<HopperTile, sizeof...(Shapes)> TilesOf(Shapes...) {
  return {{{Shapes::kBytes, Shapes::kE5m2V, Shapes::kPretransposed, Shapes::kDim, Shapes::kDimV,
            Shapes::kRows, Shapes::kKeys, Shapes::kSharedBytes, Shapes::kAsideBytes,
            Shapes::kPartBytes, Shapes::kAdds, Shapes::kPairs, Shapes::kHasTmaStores}...}};
}
constexpr auto kHopperTiles = WithHopperShapes([](auto... shapes) { return TilesOf(shapes...); });

// Rows of a box: the 128-byte swizzle repeats every 8 rows, so boxes of a tile begin at multiples of 8.
constexpr int kLeastBoxKeys = 8;

int64_t CeilDivide(int64_t x, int64_t by) { return (x + by - 1) / by; }

absl::StatusOr<size_t> ShapeFor(const AttentionProblem& p, bool pretransposed) {
  for (size_t i = 0; i < kHopperTiles.size(); ++i) {
    if (SizeOf(p.dtype) != kHopperTiles[i].bytes) continue;
    if ((p.VDType() == DType::kFloat8E5M2) != kHopperTiles[i].e5m2_v) continue;
    if (pretransposed != kHopperTiles[i].pretransposed) continue;
    if (p.d <= kHopperTiles[i].head_dim && p.dv <= kHopperTiles[i].head_dim_v) return i;
  }
  const bool d = p.d > 256;
  return absl::UnimplementedError(absl::StrCat(d ? "d" : "dv", ": ", d ? p.d : p.dv,
                                               " is above 256, the largest head dim here"));
}

// Units run in groups, so that K and V of a group, and of the first head of the next one, stay in a
// quarter of the L2 cache. A group has tiles enough for two per block: the longest ones then end
// before the others have run out. Of short sequences it has fewer heads than that: blocks then read
// K and V of the next group while others still compute.
// `cluster` blocks have a tile together.
absl::StatusOr<device::Grid> GridFor(const AttentionProblem& p, const DeviceInfo& device, int rows,
                                     int cluster, int pack) {
  rows *= cluster;
  const int64_t units = p.b * (p.hq / pack), tiles = CeilDivide(p.sq * pack, rows);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (tiles > 0 && units > kMost / tiles) {
    return absl::UnimplementedError(
        absl::StrCat("b: ", p.b, " sequences with ", units / p.b, " heads of ", tiles,
                     " query tiles each have more than ", kMost, " tiles"));
  }
  // Without a mask all tiles are equally long, and heads run one after the other.
  int64_t groups = std::max<int64_t>(1, units);
  if (p.mask != Mask::None()) {
    const double kv_bytes =
        static_cast<double>(p.skv) * static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
    const double kv_heads = std::floor(static_cast<double>(device.last_level_cache_bytes) / 4 /
                                       std::max(kv_bytes, 1.0)) -
                            1;
    const double fit = kv_heads * static_cast<double>(pack == 1 ? p.GroupSize() : 1);
    const double blocks = std::max(1, device.multiprocessors);
    const double least = std::min(
        blocks / 8, 2 * blocks / static_cast<double>(std::max<int64_t>(1, tiles * cluster)));
    groups = static_cast<int64_t>(
        std::ceil(static_cast<double>(units) / std::ceil(std::max(fit, least))));
    groups = std::max<int64_t>(1, groups);
  }
  return device::MakeGrid(static_cast<uint32_t>(units), static_cast<uint32_t>(p.hq / pack),
                          static_cast<uint32_t>(tiles), static_cast<uint32_t>(groups), pack);
}

// The fewest keys of which pairs of blocks are faster: they wait for each other at the start of a query tile.
int64_t FewestKeysOfPairs(const AttentionProblem& p, const HopperTile& tile) {
  if (tile.bytes == 2) return tile.head_dim > 128 ? 8192 : 4096;
  if (tile.head_dim > 128) return std::numeric_limits<int64_t>::max();
  return p.mask == Mask::None() ? 2048 : 8192;
}

// Whether pairs of blocks are faster. Under a causal mask the first of them skips the last keys, and windows are too
// short for that. With an odd number of tiles, one block has none at the end, which must not take another round. If
// pages make few boxes of a tile of keys, pairs are 2 % slower; beyond head dim 128 and of fp8 it was not measured.
bool PairsAreFaster(const AttentionProblem& p, const HopperTile& tile, int boxes,
                    int multiprocessors) {
  if (boxes > 1 && (boxes < 8 || tile.bytes == 1 || tile.head_dim > 128)) return false;
  const int64_t tiles = CeilDivide(p.sq, tile.rows), units = p.b * p.hq;
  return (p.mask == Mask::None() || p.mask == Mask::Causal()) && p.lens == Lengths::kFixed &&
         p.skv >= FewestKeysOfPairs(p, tile) && tiles > 1 && (tiles % 2 == 0 || tiles > 32) &&
         CeilDivide(units * CeilDivide(tiles, 2), multiprocessors / 2) <=
             CeilDivide(units * tiles, multiprocessors);
}

// The value of a key, by default `otherwise`. True is Unimplemented if there is a reason against it.
absl::StatusOr<bool> ValueOf(const LaunchConfig& config, absl::string_view key, bool otherwise,
                             const std::string& why_not) {
  const absl::StatusOr<bool> value = config.GetBool(key, otherwise);
  if (!value.ok() || !*value || why_not.empty()) return value;
  return absl::UnimplementedError(absl::StrCat(key, ": ", why_not));
}

// Whether blocks run in pairs.
absl::StatusOr<bool> PairsFor(const AttentionProblem& p, const HopperTile& tile, int box_keys,
                              int multiprocessors, const LaunchConfig& config) {
  const int boxes = tile.keys / box_keys;
  std::string why;
  if (!tile.pairs) {
    why = tile.e5m2_v ? "not for fp8_e5m2" : "for head dims above 96 only";
  } else if (p.softcap != 0) {
    why = "not for softcap";
  } else if (boxes > 1 && boxes % 2 != 0) {
    why = absl::StrCat("not for pages of ", p.page, ", as a tile of ", tile.keys, " keys has ",
                       boxes, " boxes, an odd number");
  } else if (multiprocessors < 2) {
    why = "for two multiprocessors and more";
  }
  return ValueOf(config, "pairs", why.empty() && PairsAreFaster(p, tile, boxes, multiprocessors),
                 why);
}

// A query that is shorter than a tile shares it with the other heads of its KV head.
bool Packs(const AttentionProblem& p, const HopperTile& tile) {
  const int64_t group = p.GroupSize();
  return p.sq < tile.rows && group <= tile.rows && tile.rows % group == 0;
}

// In all.
double KeyTilesOf(const AttentionProblem& p, const HopperTile& tile) {
  return static_cast<double>(p.b) * static_cast<double>(p.hkv) *
         static_cast<double>(CeilDivide(p.skv, tile.keys));
}

// Whether query tiles save more than it takes to transpose V before, in nanoseconds by measurement on an H200.
bool PretransposingIsFaster(const AttentionProblem& p, const HopperTile& tile,
                            int multiprocessors) {
  if (p.mask != Mask::None() && p.mask != Mask::Causal()) return false;
  const int64_t pack = Packs(p, tile) ? p.GroupSize() : 1,
                tiles = CeilDivide(p.sq * pack, tile.rows),
                key_tiles = CeilDivide(p.skv, tile.keys);
  // Of a query tile and a tile of keys. Under a causal mask each query tile sees one more than that before.
  double pairs = static_cast<double>(tiles * key_tiles);
  if (p.mask != Mask::None()) {
    const int64_t see = std::min(tiles, key_tiles);
    pairs = static_cast<double>(see * key_tiles - see * (see - 1) / 2);
  }
  pairs *= static_cast<double>(p.b) * static_cast<double>(p.hq / pack);
  const double saved = pairs / multiprocessors * (tile.head_dim > 128 ? 190 : 30);
  return saved > 3000 + 0.36e-3 * KeyTilesOf(p, tile) * static_cast<double>(p.dv * tile.keys);
}

// The shape for V that is transposed before, or `otherwise`.
absl::StatusOr<size_t> PretransposedShape(const AttentionProblem& p, size_t otherwise,
                                          int multiprocessors, const LaunchConfig& config) {
  const HopperTile& tile = kHopperTiles[otherwise];
  const absl::StatusOr<size_t> shape = ShapeFor(p, /*pretransposed=*/true);
  std::string why;
  if (!shape.ok() || tile.head_dim != kHopperTiles[*shape].head_dim ||
      tile.head_dim_v != kHopperTiles[*shape].head_dim_v) {
    why = absl::StrCat("for fp8_e4m3 and tiles of head dim 128 or 256, not ", p.ToString());
  } else if (p.softcap != 0) {
    why = "not for softcap";
  } else if (p.lens != Lengths::kFixed || p.page != 0) {
    why = "not for lengths and pages";
  } else if (p.dv % 16 != 0) {
    // Rows are 16 bytes or more apart, and columns change places with others of their 16 (hopper_transpose.cuh).
    why = absl::StrCat("dv: ", p.dv, " is not a multiple of 16");
  } else if (p.sq == 0 || p.skv == 0) {
    why = absl::StrCat("not for ", p.sq, " queries and ", p.skv, " keys");
  } else if (KeyTilesOf(p, tile) > std::numeric_limits<int32_t>::max()) {
    why = absl::StrCat("b: ", p.b, " sequences with ", p.hkv, " heads of ", p.skv,
                       " keys have more than ", std::numeric_limits<int32_t>::max(), " tiles");
  }
  const absl::StatusOr<bool> before =
      ValueOf(config, "pretransposed",
              why.empty() && PretransposingIsFaster(p, tile, multiprocessors), why);
  if (!before.ok()) return before.status();
  return *before ? *shape : otherwise;
}

// Whether there is a kernel for it. TMA stores whole chunks of 16 bytes, and each warp its own rows: whole tokens.
bool CanStoreByTma(const AttentionProblem& p, const HopperTile& tile, int pack, bool pairs) {
  return tile.stores_by_tma && !pairs && p.softcap == 0 && p.dv % 8 == 0 &&
         kRowsOfAWarp % pack == 0;
}
// Without a mask all blocks store at about the same time. Of few keys that counts, by measurement on an H200.
bool StoringByTmaIsFaster(const AttentionProblem& p) {
  return p.mask == Mask::None() && p.skv <= 1024;
}

// How blocks share the last of so many query tiles.
absl::StatusOr<Shares> SharesFor(const AttentionProblem& p, int keys, int64_t tiles, int64_t blocks,
                                 const LaunchConfig& config) {
  // Tiles of keys that a block saves at least, to make up for the parts that it stores and loads.
  constexpr int64_t kLeastSaved = 7;
  const int64_t key_tiles = CeilDivide(p.skv, keys),
                most = (int64_t{1} << 30) / std::max<int64_t>(1, blocks);
  std::string why;
  if (p.mask != Mask::None() || p.lens != Lengths::kFixed) {
    why = absl::StrCat(
        "only without mask and lengths, where all query tiles take equally long; this is ",
        p.ToString());
  } else if (tiles % std::max<int64_t>(1, blocks) == 0) {  // there are not more blocks than tiles
    why = absl::StrCat(tiles, " query tiles on ", blocks, " blocks leave none to share");
  } else if (key_tiles < 2 || key_tiles > most) {
    why = absl::StrCat(p.skv, " keys are ", key_tiles, " tiles, not 2 to ", most);
  }
  const bool faster = why.empty() && (CeilDivide(tiles, blocks) * blocks - tiles) * key_tiles >=
                                         kLeastSaved * blocks;
  const absl::StatusOr<bool> shares = ValueOf(config, "shares", faster, why);
  if (!shares.ok()) return shares.status();
  if (!*shares) return Shares();
  return SharesOf(static_cast<uint32_t>(tiles), static_cast<uint32_t>(key_tiles),
                  static_cast<uint32_t>(blocks));
}

}  // namespace

absl::StatusOr<Options> OptionsFor(const AttentionProblem& p, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({"pairs", "shares", "pretransposed"}); !s.ok()) return s;
  for (const int capability : {device.compute_capability, code_capability}) {
    if (capability == 90) continue;
    return absl::UnimplementedError(absl::StrCat("device: ", device.compute_capability / 10, ".",
                                                 device.compute_capability % 10, " with code for ",
                                                 code_capability / 10, ".", code_capability % 10,
                                                 "; this kernel's wgmma is that of 9.0 alone"));
  }
  if (p.dtype == DType::kFloat32) {
    return absl::UnimplementedError("dtype: wgmma multiplies fp16, bf16 and fp8, not fp32");
  }
  if (p.ODType() == DType::kFloat32) {
    return absl::UnimplementedError("odtype: fp32 is not one of fp16 and bf16");
  }
  if (p.page != 0 && p.page < kLeastBoxKeys) {
    return absl::UnimplementedError(absl::StrCat("page: ", p.page,
                                                 "; TMA copies whole pages to swizzled tiles, "
                                                 "which takes pages of at least ",
                                                 kLeastBoxKeys, " keys"));
  }
  if (absl::Status s = CheckTensorCoreKeys(p, code_capability); !s.ok()) return s;
  const int multiprocessors = std::max(1, device.multiprocessors);
  absl::StatusOr<size_t> shape = ShapeFor(p, /*pretransposed=*/false);
  if (shape.ok()) shape = PretransposedShape(p, *shape, multiprocessors, config);
  if (!shape.ok()) return shape.status();
  Options options;
  options.shape = *shape;
  const HopperTile& tile = options.tile = kHopperTiles[*shape];
  // 0: the device does not say.
  const int64_t there = device.shared_memory_per_block;
  if (there != 0 && tile.shared_bytes > there) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "d: head dims up to ", tile.head_dim, " need ", tile.shared_bytes,
        " bytes of shared memory per block, but ", ToString(device.device), " has ", there));
  }
  options.box_keys = p.page == 0 ? tile.keys : static_cast<int>(std::gcd(p.page, tile.keys));
  const absl::StatusOr<bool> pairs = PairsFor(p, tile, options.box_keys, multiprocessors, config);
  if (!pairs.ok()) return pairs.status();
  options.pairs = *pairs;
  const int cluster = *pairs ? 2 : 1;
  if (options.box_keys == tile.keys) options.box_keys /= cluster;
  const absl::StatusOr<device::Grid> grid =
      GridFor(p, device, tile.rows, cluster, Packs(p, tile) ? static_cast<int>(p.GroupSize()) : 1);
  if (!grid.ok()) return grid.status();
  options.grid = *grid;
  const int64_t tiles = BlocksOf(*grid);
  const int clusters = static_cast<int>(std::min<int64_t>(multiprocessors / cluster, tiles));
  options.blocks = clusters * cluster;
  const absl::StatusOr<Shares> shares = SharesFor(p, tile.keys, tiles, clusters, config);
  if (!shares.ok()) return shares.status();
  options.shares = *shares;
  options.stores_by_tma = CanStoreByTma(p, tile, grid->pack, *pairs) && StoringByTmaIsFaster(p);
  if (tile.pretransposed) {
    options.key_tiles = static_cast<int>(CeilDivide(p.skv, tile.keys));
    options.transposed_bytes = p.b * p.hkv * options.key_tiles * p.dv * tile.keys;
  }
  options.dynamic = (p.mask != Mask::None() || p.lens != Lengths::kFixed) && tiles > clusters;
  return options;
}

}  // namespace attnlab::warp_specialized
