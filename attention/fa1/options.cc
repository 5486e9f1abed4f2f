#include "attention/fa1/options.h"

#include "attention/device/cuda_core_choice.h"

namespace attnlab::fa1 {

std::vector<std::string> ConfigKeys() {
  return {
      "tile_q: query rows of a tile; by head dim there are two (docs/fa1.md), by default the "
      "larger that fits the device, or the smaller, where it has room for the query",
      "tile_kv: keys of a tile, which go with the rows",
  };
}

absl::StatusOr<device::CudaCoreTile> TileFor(const AttentionProblem& problem,
                                             const DeviceInfo& device, const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({"tile_q", "tile_kv"}); !s.ok()) return s;
  return device::ChooseCudaCoreTile(problem, device, config, problem.sq,
                                    /*medium=*/false);
}

}  // namespace attnlab::fa1
