// split_k's configuration, and how it divides a problem among blocks.
#ifndef ATTENTION_SPLIT_K_OPTIONS_H_
#define ATTENTION_SPLIT_K_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/split_k/shape.h"
#include "attention/split_k/split.h"

namespace attnlab::split_k {

struct Options {
  bool tensor_cores = false;
  SplitTile tile;
  SplitGrid grid;

  // Bytes of workspace; 0 if no tile has more than one part, or the parts are clusters.
  int64_t WorkspaceBytes(int64_t dv) const;
};

// The configuration keys and their meanings, for KernelTraits.
std::vector<std::string> ConfigKeys();

// Whether it is about as fast as any kernel of this tree, or faster: the query is one tile, or the
// tiles of all sequences leave half of the multiprocessors without one (docs/split_k.md).
bool IsBestFor(const AttentionProblem& problem, const DeviceInfo& device);

// The configured options, with defaults for what the configuration leaves out. `code_capability`:
// the compute capability for which the device code that runs there was compiled
// (attention/cuda/code_capability_of.h).
//
// Errors:
//
//   Unimplemented       head dims above 256; code for GPUs before 8.0; more keys of a part than tensor cores
//                       are given (core/supports.h); more blocks than a launch can have
//   InvalidArgument     unknown keys, or values out of range
//   ResourceExhausted   a block that does not fit the device's shared memory
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config);

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_OPTIONS_H_
