#include "attention/warp_specialized/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/supports.h"
#include "attention/warp_specialized/hopper_shape.h"

namespace attnlab::warp_specialized {
namespace {

template <typename... Shapes>
constexpr std::array<HopperTile, sizeof...(Shapes)> TilesOf(Shapes...) {
  return {{{Shapes::kDim, Shapes::kDimV, Shapes::kRows, Shapes::kKeys, Shapes::kSharedBytes}...}};
}
constexpr auto kHopperTiles = WithHopperShapes([](auto... shapes) { return TilesOf(shapes...); });

absl::StatusOr<size_t> ShapeFor(const AttentionProblem& p) {
  for (size_t i = 0; i < kHopperTiles.size(); ++i) {
    if (p.d <= kHopperTiles[i].head_dim && p.dv <= kHopperTiles[i].head_dim_v) return i;
  }
  const bool d = p.d > 256;
  return absl::UnimplementedError(absl::StrCat(d ? "d" : "dv", ": ", d ? p.d : p.dv,
                                               " is above 256, the largest head dim here"));
}

// Units run in groups (device/tile_order.h), so that K and V of a group stay in half of the L2 cache. A
// group has tiles enough for two per block.
int64_t GroupsOf(const AttentionProblem& p, const DeviceInfo& device, const Options& options) {
  // Without a mask all tiles are equally long.
  if (p.mask == Mask::None()) return std::max<int64_t>(1, options.units);
  const double kv_bytes =
      static_cast<double>(p.skv) * static_cast<double>((p.d + p.dv) * SizeOf(p.dtype));
  const double kv_heads =
      static_cast<double>(device.last_level_cache_bytes) / 2 / std::max(kv_bytes, 1.0);
  const double fit = kv_heads * static_cast<double>(options.pack == 1 ? p.GroupSize() : 1);
  const double least =
      2.0 * device.multiprocessors / std::max(1.0, static_cast<double>(options.unit_tiles));
  const double groups = static_cast<double>(options.units) / std::ceil(std::max(fit, least));
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(groups)));
}

}  // namespace

absl::StatusOr<Options> OptionsFor(const AttentionProblem& p, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({}); !s.ok()) return s;
  for (const int capability : {device.compute_capability, code_capability}) {
    if (capability == 90) continue;
    return absl::UnimplementedError(absl::StrCat("device: ", device.compute_capability / 10, ".",
                                                 device.compute_capability % 10, " with code for ",
                                                 code_capability / 10, ".", code_capability % 10,
                                                 "; this kernel's wgmma is that of 9.0 alone"));
  }
  if (p.dtype == DType::kFloat32) {
    return absl::UnimplementedError("dtype: wgmma multiplies fp16 and bf16, not fp32");
  }
  if (absl::Status s = CheckTensorCoreKeys(p, code_capability); !s.ok()) return s;
  const absl::StatusOr<size_t> shape = ShapeFor(p);
  if (!shape.ok()) return shape.status();
  Options options;
  options.shape = *shape;
  const HopperTile& tile = options.tile = kHopperTiles[*shape];
  // A query that is shorter than a tile shares it with the other heads of its KV head.
  const int64_t group = p.GroupSize();
  if (p.sq < tile.rows && group <= tile.rows && tile.rows % group == 0) {
    options.pack = static_cast<int>(group);
  }
  options.units = p.b * (p.hq / options.pack);
  options.unit_tiles = (p.sq * options.pack + tile.rows - 1) / tile.rows;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (options.unit_tiles > 0 && options.units > kMost / options.unit_tiles) {
    return absl::UnimplementedError(absl::StrCat("b: ", options.units, " heads of ",
                                                 options.unit_tiles,
                                                 " query tiles each are more than ", kMost));
  }
  options.blocks = static_cast<int>(
      std::min<int64_t>(device.multiprocessors, options.units * options.unit_tiles));
  options.groups = GroupsOf(p, device, options);
  // Under a mask the first quarter of a unit's tiles, the shortest ones, come after all groups. The last
  // group's long tiles end while these run. Otherwise up to a tenth of the time would be lost there.
  options.end_tiles = p.mask == Mask::None() ? 0 : options.unit_tiles / 4;
  options.dynamic = (p.mask != Mask::None() || p.lens != Lengths::kFixed) &&
                    options.units * options.unit_tiles > options.blocks;
  return options;
}

}  // namespace attnlab::warp_specialized
