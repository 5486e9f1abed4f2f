#include "attention/device/cuda_core_choice.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/device/tile_choice.h"

namespace attnlab::device {

namespace {

// A multiprocessor has 1 KiB more shared memory than one block can have, and each block takes 1 KiB
// more than it asks for. If the device's shared memory is unknown, everything fits.
bool HoldsItsBlocks(const DeviceInfo& device, const CudaCoreTile& tile) {
  const int64_t there = device.shared_memory_per_block;
  return there == 0 || (there + 1024) / (tile.shared_bytes + 1024) >= tile.blocks;
}

}  // namespace

absl::StatusOr<CudaCoreTile> ChooseCudaCoreTile(const AttentionProblem& p, const DeviceInfo& device,
                                                const LaunchConfig& config, int64_t rows,
                                                bool medium) {
  for (const auto& [name, dim] : {std::make_pair("d", p.d), std::make_pair("dv", p.dv)}) {
    if (dim <= kMaxCudaCoreDim) continue;
    return absl::UnimplementedError(absl::StrCat(name, ": ", dim, " is above ", kMaxCudaCoreDim,
                                                 ", the largest head dim on CUDA cores"));
  }
  const bool named = !config.Get("tile_q", "").empty();
  std::vector<CudaCoreTile> tiles;
  for (const CudaCoreTile& tile : kCudaCoreTiles) {
    if (p.dtype != DType::kFloat32 && !IsDimOf16Bits(tile.dim)) continue;
    if (tile.blocks == 1) {
      tiles.push_back(tile);
    } else if (medium && (named || HoldsItsBlocks(device, tile))) {
      tiles.insert(tiles.end() - 1, tile);  // before the large one
    }
  }
  std::vector<TileNeeds> needs;
  for (const CudaCoreTile& t : tiles) needs.push_back({t.dim, t.rows, t.keys, t.shared_bytes});
  const absl::StatusOr<size_t> chosen = ChooseTile(needs, p, device, config, rows);
  if (!chosen.ok()) return chosen.status();
  return tiles[*chosen];
}

}  // namespace attnlab::device
