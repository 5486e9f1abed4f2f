#include "attention/device/tile_choice.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab::device {
namespace {

std::string NameOf(const TileNeeds& tile) {
  return absl::StrCat("tile_q=", tile.rows, ",tile_kv=", tile.keys);
}

std::string NamesOf(absl::Span<const TileNeeds> tiles) {
  std::vector<std::string> names;
  for (const TileNeeds& tile : tiles) names.push_back(NameOf(tile));
  if (names.size() == 1) return absl::StrCat("there is ", names[0]);
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat("there are ", absl::StrJoin(names, ", "), " and ", last);
}

}  // namespace

absl::StatusOr<size_t> ChooseTile(absl::Span<const TileNeeds> tiles, const AttentionProblem& p,
                                  const DeviceInfo& device, const LaunchConfig& config,
                                  int64_t rows, absl::string_view engine) {
  constexpr int64_t kMost = 1 << 20;
  const absl::StatusOr<int64_t> tile_q = config.GetInteger("tile_q", 0, 1, kMost);
  if (!tile_q.ok()) return tile_q.status();
  const absl::StatusOr<int64_t> tile_kv = config.GetInteger("tile_kv", 0, 1, kMost);
  if (!tile_kv.ok()) return tile_kv.status();

  size_t begin = 0;
  while (begin < tiles.size() && tiles[begin].head_dim < std::max(p.d, p.dv)) ++begin;
  if (begin == tiles.size()) {
    return absl::UnimplementedError(
        absl::StrCat("d: ", std::max(p.d, p.dv), " is above the largest head dim"));
  }
  size_t end = begin;
  while (end < tiles.size() && tiles[end].head_dim == tiles[begin].head_dim) ++end;

  std::vector<size_t> named;
  for (size_t i = begin; i < end; ++i) {
    if (*tile_q != 0 && tiles[i].rows != *tile_q) continue;
    if (*tile_kv != 0 && tiles[i].keys != *tile_kv) continue;
    named.push_back(i);
  }
  if (named.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("config: ", config.ToString(), " is not a tile", engine.empty() ? "" : " of ",
                     engine, " for head dims up to ", tiles[begin].head_dim, "; ",
                     NamesOf(tiles.subspan(begin, end - begin))));
  }
  const bool free = *tile_q == 0 && *tile_kv == 0;
  if (free && rows <= tiles[named.back()].rows) std::reverse(named.begin(), named.end());
  // If the device's shared memory is unknown, everything fits.
  const int64_t there = device.shared_memory_per_block;
  for (const size_t i : named) {
    if (there == 0 || tiles[i].shared_bytes <= there) return i;
  }
  const TileNeeds& least =
      tiles[*std::min_element(named.begin(), named.end(), [&](size_t a, size_t b) {
        return tiles[a].shared_bytes < tiles[b].shared_bytes;
      })];
  return absl::ResourceExhaustedError(absl::StrCat(
      "config: ", engine, engine.empty() ? "" : ",", NameOf(least), " needs ", least.shared_bytes,
      " bytes of shared memory per block, but ", ToString(device.device), " has ", there));
}

}  // namespace attnlab::device
