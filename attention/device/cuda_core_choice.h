// Which tile of the table (cuda_core_table.h) a problem gets.
#ifndef ATTENTION_DEVICE_CUDA_CORE_CHOICE_H_
#define ATTENTION_DEVICE_CUDA_CORE_CHOICE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/cuda_core_table.h"

namespace attnlab::device {

// The tile for the problem's head dims: the first of the table that has the tile_q and tile_kv of
// the configuration, where it names them, and fits the device. Left alone, that is the large one,
// but the small one where all of a tile's rows, of which there are `rows` a (sequence, head), fit
// it.
//
// `medium`: whether the kernel has the medium tiles, too. Then one of those is before the large one
// where a multiprocessor holds as many of its blocks as it is for, and is not there where it does
// not, unless tile_q names it.
//
// Unimplemented for head dims above kMaxCudaCoreDim; InvalidArgument for tiles that there are not,
// with those that there are; ResourceExhausted, with how much is needed and how much there is, for
// those that do not fit.
absl::StatusOr<CudaCoreTile> ChooseCudaCoreTile(const AttentionProblem& problem,
                                                const DeviceInfo& device,
                                                const LaunchConfig& config, int64_t rows,
                                                bool medium);

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_CHOICE_H_
