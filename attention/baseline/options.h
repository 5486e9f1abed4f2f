// What can be configured of the baseline, and how its scratch memory is divided.
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
  // Threads a block of the permutations, and of scale and mask and softmax.
  int permute_block = 128;
  int softmax_block = 128;
  bool always_permute = false;  // also where the matrix products could do without
  bool tf32 = false;
  bool fused = false;  // scale and mask as part of the softmax
  // KV heads of sequences whose scores are in memory at a time.
  int64_t heads = 1;
};

// The keys with what they mean, for KernelTraits.
std::vector<std::string> ConfigKeys();

// The configuration's choice, and the defaults for what it leaves out. InvalidArgument for unknown
// keys and values that make no sense; Unimplemented for TF32 before compute capability 8.0.
absl::StatusOr<Options> OptionsFor(const AttentionProblem& problem, const DeviceInfo& device,
                                   const LaunchConfig& config);

// The type that Q, K, V, P and O have between the permutations: the problem's, but fp32 for bf16
// before compute capability 8.0, whose tensor cores do not know bf16.
device::Element ComputeElement(const AttentionProblem& problem, const DeviceInfo& device);

// ResourceExhausted, with how much is needed and how much there is, where the scratch of the
// problem does not fit the device.
absl::Status CheckMemory(const AttentionProblem& problem, const DeviceInfo& device,
                         const Options& options);

// The parts of the workspace, as offsets in bytes. Rows are padded to 16 bytes. Q, K, V and O have
// their place whether or not the strides of a call need it, for a workspace is promised before
// there are tensors. Of a problem that CheckMemory() passed.
struct Layout {
  Layout(const AttentionProblem& problem, const DeviceInfo& device, const Options& options);

  device::Element element;  // of all but the scores
  // Elements from row to row.
  int64_t q_stride = 0, v_stride = 0;  // K as Q, O as V
  int64_t score_stride = 0, probability_stride = 0;

  int64_t q = 0, k = 0, v = 0, o = 0;
  int64_t scores = 0;         // of options.heads KV heads
  int64_t probabilities = 0;  // the same; in the scores' place where both are fp32
  int64_t cublas = 0, cublas_bytes = 0;
  int64_t total = 0;
};

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_OPTIONS_H_
