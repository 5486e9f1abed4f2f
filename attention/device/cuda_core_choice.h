// Chooses a tile of the table in cuda_core_table.h for a problem.
#ifndef ATTENTION_DEVICE_CUDA_CORE_CHOICE_H_
#define ATTENTION_DEVICE_CUDA_CORE_CHOICE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/cuda_core_table.h"

namespace attnlab::device {

// Returns the first tile of the table for the problem's head dims that has the configuration's
// tile_q and tile_kv, if it names them, and fits the device. By default that is the large tile. It
// is the small tile if all rows of a (sequence, head), of which there are `rows`, fit in it.
//
// `medium`: whether the kernel also has medium tiles. A medium tile comes before the large one if a
// multiprocessor holds as many of its blocks as the tile is made for. If it does not, the medium
// tile is used only if tile_q names it.
//
// Errors: Unimplemented for head dims above kMaxCudaCoreDim. InvalidArgument for a tile that does
// not exist; the message lists those that do. ResourceExhausted for a tile that does not fit, with
// the bytes that it needs and the bytes that there are.
absl::StatusOr<CudaCoreTile> ChooseCudaCoreTile(const AttentionProblem& problem,
                                                const DeviceInfo& device,
                                                const LaunchConfig& config, int64_t rows,
                                                bool medium);

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_CHOICE_H_
