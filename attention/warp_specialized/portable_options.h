// The portable kernel's configuration, and what it chooses for a problem.
#ifndef ATTENTION_WARP_SPECIALIZED_PORTABLE_OPTIONS_H_
#define ATTENTION_WARP_SPECIALIZED_PORTABLE_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/tile_order.h"
#include "attention/warp_specialized/portable_shape.h"

namespace attnlab::warp_specialized {

struct PortableOptions {
  PortableTile tile;
  PortableBlock block;
  device::Grid grid;

  int Rows() const { return tile.RowsOf(block.consumers); }  // query rows per tile
};

// The configuration keys and their meanings, for KernelTraits.
std::vector<std::string> PortableConfigKeys();

// The configured options, with defaults for what the configuration leaves out. `code_capability`:
// the compute capability for which the device code that runs there was compiled
// (attention/cuda/code_capability_of.h).
//
// Errors:
//
//   Unimplemented       head dims above kMostPortableDim; bf16 before 8.0; 16-bit rows that see more
//                       keys than tensor cores are given (core/supports.h); more tiles than a launch
//                       can have blocks
//   InvalidArgument     unknown keys; tiles, threads and stages that do not exist, or contradict
//                       each other
//   ResourceExhausted   a block that does not fit the device's shared memory
absl::StatusOr<PortableOptions> PortableOptionsFor(const AttentionProblem& problem,
                                                   const DeviceInfo& device, int code_capability,
                                                   const LaunchConfig& config);

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_PORTABLE_OPTIONS_H_
