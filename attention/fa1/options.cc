#include "attention/fa1/options.h"

#include "attention/device/cuda_core_choice.h"

namespace attnlab::fa1 {

std::vector<std::string> ConfigKeys() {
  return {
      "tile_q: query rows per tile; two choices per head dim (docs/fa1.md) [the larger that fits, "
      "or the smaller if it holds the whole query]",
      "tile_kv: keys per tile; fixed by tile_q",
  };
}

absl::StatusOr<device::CudaCoreTile> TileFor(const AttentionProblem& problem,
                                             const DeviceInfo& device, const LaunchConfig& config) {
  if (absl::Status s = config.CheckKeys({"tile_q", "tile_kv"}); !s.ok()) return s;
  return device::ChooseCudaCoreTile(problem, device, config, problem.sq,
                                    /*medium=*/false);
}

}  // namespace attnlab::fa1
