#include "attention/device/cuda_core_choice.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab::device {
namespace {

std::string NameOf(const CudaCoreTile& tile) {
  return absl::StrCat("tile_q=", tile.rows, ",tile_kv=", tile.keys);
}

// Of the least head dim that has room for the problem's.
std::vector<CudaCoreTile> TilesFor(const AttentionProblem& p) {
  std::vector<CudaCoreTile> tiles;
  for (const CudaCoreTile& tile : kCudaCoreTiles) {
    if (tile.dim < std::max(p.d, p.dv)) continue;
    if (!tiles.empty() && tile.dim != tiles[0].dim) break;
    tiles.push_back(tile);
  }
  return tiles;
}

}  // namespace

absl::StatusOr<CudaCoreTile> ChooseCudaCoreTile(const AttentionProblem& p, const DeviceInfo& device,
                                                const LaunchConfig& config, int64_t rows) {
  for (const auto& [name, dim] : {std::make_pair("d", p.d), std::make_pair("dv", p.dv)}) {
    if (dim <= kMaxCudaCoreDim) continue;
    return absl::UnimplementedError(absl::StrCat(name, ": ", dim, " is above ", kMaxCudaCoreDim,
                                                 ", the largest head dim on CUDA cores"));
  }
  constexpr int64_t kMost = 1 << 20;
  const absl::StatusOr<int64_t> tile_q = config.GetInteger("tile_q", 0, 1, kMost);
  if (!tile_q.ok()) return tile_q.status();
  const absl::StatusOr<int64_t> tile_kv = config.GetInteger("tile_kv", 0, 1, kMost);
  if (!tile_kv.ok()) return tile_kv.status();

  std::vector<CudaCoreTile> tiles = TilesFor(p), named;
  for (const CudaCoreTile& tile : tiles) {
    if (*tile_q != 0 && tile.rows != *tile_q) continue;
    if (*tile_kv != 0 && tile.keys != *tile_kv) continue;
    named.push_back(tile);
  }
  if (named.empty()) {
    const auto append = [](std::string* out, const CudaCoreTile& tile) {
      absl::StrAppend(out, NameOf(tile));
    };
    return absl::InvalidArgumentError(
        absl::StrCat("config: ", config.ToString(), " is no tile for head dims up to ",
                     tiles[0].dim, "; there are ", absl::StrJoin(tiles, " and ", append)));
  }
  const bool free = *tile_q == 0 && *tile_kv == 0;
  if (free && rows <= named.back().rows) std::reverse(named.begin(), named.end());
  // Of a device that nobody has described, everything fits.
  const int64_t there = device.shared_memory_per_block;
  for (const CudaCoreTile& tile : named) {
    if (there == 0 || tile.shared_bytes <= there) return tile;
  }
  const auto least = std::min_element(
      named.begin(), named.end(),
      [](const CudaCoreTile& a, const CudaCoreTile& b) { return a.shared_bytes < b.shared_bytes; });
  return absl::ResourceExhaustedError(absl::StrCat(
      "config: ", NameOf(*least), " needs ", least->shared_bytes,
      " bytes of shared memory a block, and ", ToString(device.device), " has ", there));
}

}  // namespace attnlab::device
