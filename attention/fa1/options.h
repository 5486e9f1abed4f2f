// FA1's configuration.
#ifndef ATTENTION_FA1_OPTIONS_H_
#define ATTENTION_FA1_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/cuda_core_table.h"

namespace attnlab::fa1 {

// The configuration keys and their meanings, for KernelTraits.
std::vector<std::string> ConfigKeys();

// The configured tile, or the default for the problem. Errors are those of cuda_core_choice.h, and
// InvalidArgument for unknown keys.
absl::StatusOr<device::CudaCoreTile> TileFor(const AttentionProblem& problem,
                                             const DeviceInfo& device, const LaunchConfig& config);

}  // namespace attnlab::fa1

#endif  // ATTENTION_FA1_OPTIONS_H_
