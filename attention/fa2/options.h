// What can be configured of FA2, and what it chooses for a problem.
#ifndef ATTENTION_FA2_OPTIONS_H_
#define ATTENTION_FA2_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/cuda_core_table.h"
#include "attention/device/tile_order.h"
#include "attention/fa2/tensor_cores.h"
#include "attention/fa2/tf32.h"

namespace attnlab::fa2 {

using device::Grid;

// What multiplies.
enum class Engine { kMma, kTf32x3, kCudaCores };

struct Options {
  Engine engine = Engine::kMma;
  // That of the engine counts.
  TensorCoreTileRow mma_tile;
  Tf32TileRow tf32_tile;
  device::CudaCoreTile cuda_core_tile;
  int blocks = 1;  // that a multiprocessor has room for
  Grid grid;

  int Rows() const;  // of Q in a tile
};

// The keys with what they mean, for KernelTraits.
std::vector<std::string> ConfigKeys();

// The configuration's choice, and the defaults for what it leaves out. `code_capability`: what the
// device code that runs there was compiled for (device/code_capability.h).
//
// Unimplemented for head dims above kMaxHeadDim, for rows of 16 bits that see more keys than tensor
// cores are given (tensor_cores.h), for more tiles than a launch has blocks, and for tensor cores
// that do not know the dtype; InvalidArgument for keys and values that there are not, with those
// that there are; ResourceExhausted for a tile that does not fit a block's shared memory.
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_OPTIONS_H_
