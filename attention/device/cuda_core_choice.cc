#include "attention/device/cuda_core_choice.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/device/tile_choice.h"

namespace attnlab::device {

absl::StatusOr<CudaCoreTile> ChooseCudaCoreTile(const AttentionProblem& p, const DeviceInfo& device,
                                                const LaunchConfig& config, int64_t rows) {
  for (const auto& [name, dim] : {std::make_pair("d", p.d), std::make_pair("dv", p.dv)}) {
    if (dim <= kMaxCudaCoreDim) continue;
    return absl::UnimplementedError(absl::StrCat(name, ": ", dim, " is above ", kMaxCudaCoreDim,
                                                 ", the largest head dim on CUDA cores"));
  }
  std::vector<TileNeeds> tiles;
  for (const CudaCoreTile& t : kCudaCoreTiles) {
    tiles.push_back({t.dim, t.rows, t.keys, t.shared_bytes});
  }
  const absl::StatusOr<size_t> chosen = ChooseTile(tiles, p, device, config, rows);
  if (!chosen.ok()) return chosen.status();
  return kCudaCoreTiles[*chosen];
}

}  // namespace attnlab::device
