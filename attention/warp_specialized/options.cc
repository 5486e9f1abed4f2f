#include "attention/warp_specialized/options.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/supports.h"
#include "attention/warp_specialized/hopper_shape.h"

namespace attnlab::warp_specialized {
namespace {

template <typename Shape>
constexpr HopperTile RowOf() {
  return {Shape::kDim, Shape::kDimV, Shape::kRows, Shape::kKeys, Shape::kSharedBytes};
}

// In the order in which they are tried.
constexpr HopperTile kHopperTiles[] = {
    RowOf<Hopper64>(),      RowOf<Hopper96>(),  RowOf<Hopper128>(),
    RowOf<Hopper192v128>(), RowOf<Hopper192>(), RowOf<Hopper256>(),
};

absl::StatusOr<HopperTile> TileFor(const AttentionProblem& p) {
  for (const HopperTile& tile : kHopperTiles) {
    if (p.d <= tile.head_dim && p.dv <= tile.head_dim_v) return tile;
  }
  const bool d = p.d > 256;
  return absl::UnimplementedError(absl::StrCat(d ? "d" : "dv", ": ", d ? p.d : p.dv,
                                               " is above 256, the largest head dim here"));
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
  const absl::StatusOr<HopperTile> tile = TileFor(p);
  if (!tile.ok()) return tile.status();
  Options options;
  options.tile = *tile;
  // A query that is shorter than a tile shares it with the other heads of its KV head.
  const int64_t group = p.GroupSize();
  if (p.sq < tile->rows && group <= tile->rows && tile->rows % group == 0) {
    options.pack = static_cast<int>(group);
  }
  options.units = p.b * (p.hq / options.pack);
  options.unit_tiles = (p.sq * options.pack + tile->rows - 1) / tile->rows;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (options.unit_tiles > 0 && options.units > kMost / options.unit_tiles) {
    return absl::UnimplementedError(absl::StrCat("b: ", options.units, " heads of ",
                                                 options.unit_tiles,
                                                 " query tiles each are more than ", kMost));
  }
  return options;
}

}  // namespace attnlab::warp_specialized
