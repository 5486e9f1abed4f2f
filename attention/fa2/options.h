// FA2's configuration, and what FA2 chooses for a problem.
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

// What multiplies: mma.sync on 16 bits, 3xTF32 on fp32, or CUDA cores.
enum class Engine { kMma, kTf32x3, kCudaCores };

struct Options {
  Engine engine = Engine::kMma;
  // Only the engine's own tile is used.
  TensorCoreTileRow mma_tile;
  Tf32TileRow tf32_tile;
  device::CudaCoreTile cuda_core_tile;
  int blocks = 1;  // blocks per multiprocessor that there is room for
  Grid grid;

  int Rows() const;  // query rows per tile
};

// The configuration keys and their meanings, for KernelTraits.
std::vector<std::string> ConfigKeys();

// The configured options, with defaults for what the configuration leaves out. `code_capability`:
// the compute capability for which the device code that runs there was compiled
// (attention/cuda/code_capability.h).
//
// Errors:
//
//   Unimplemented       head dims above kMaxHeadDim; 16-bit rows that see more keys than tensor
//                       cores are given (tensor_cores.h); more tiles than a launch can have blocks;
//                       a dtype that the tensor cores do not support
//   InvalidArgument     unknown keys and values; the message lists those that exist
//   ResourceExhausted   a tile that does not fit a block's shared memory
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   int code_capability, const LaunchConfig& config);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_OPTIONS_H_
