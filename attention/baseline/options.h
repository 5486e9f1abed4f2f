// The baseline's configuration, and the layout of its workspace.
#ifndef ATTENTION_BASELINE_OPTIONS_H_
#define ATTENTION_BASELINE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/device/element.h"

namespace attnlab::baseline {

struct Options {
  // Threads per block of the permutations, and of scale, mask and softmax.
  int permute_block = 128;
  int softmax_block = 128;
  bool always_permute = false;  // even if the matrix products could do without
  bool tf32 = false;
  bool fused = false;  // scale and mask are part of the softmax
  // (sequence, KV head) pairs whose scores are in memory at a time.
  int64_t heads = 1;
};

// The configuration keys and their meanings, for KernelTraits.
std::vector<std::string> ConfigKeys();

// The configured options, with defaults for what the configuration leaves out. Errors:
// InvalidArgument for unknown keys and values out of range; Unimplemented for TF32 before compute
// capability 8.0.
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   const LaunchConfig& config);

// The type of Q, K, V, P and O between the permutations. It is the problem's, except that bf16
// becomes fp32 before compute capability 8.0, whose tensor cores do not support bf16.
device::Element ComputeElement(const AttentionProblem& problem, const DeviceInfo& device);

// Returns ResourceExhausted if the problem's scratch memory does not fit the device; the message
// has the size needed and the size available.
absl::Status CheckMemory(const AttentionProblem& problem, const DeviceInfo& device,
                         const Options& options);

// The parts of the workspace, as offsets in bytes. Rows are padded to 16 bytes. Q, K, V and O
// always have a place, even if the strides of a call do not need it: the workspace's size is fixed
// before there are tensors. The problem must have passed CheckMemory().
struct Layout {
  Layout(const AttentionProblem& problem, const DeviceInfo& device, const Options& options);

  device::Element element;  // of all but the scores
  // Elements from row to row.
  int64_t q_stride = 0, v_stride = 0;  // K as Q, O as V
  int64_t score_stride = 0, probability_stride = 0;

  int64_t q = 0, k = 0, v = 0, o = 0;
  int64_t scores = 0;         // of options.heads KV heads
  int64_t probabilities = 0;  // the same; in the scores' place if both are fp32
  int64_t cublas = 0, cublas_bytes = 0;
  int64_t total = 0;
};

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_OPTIONS_H_
