// One kernel on rotated inputs, one timed call at a time.
#ifndef ATTENTION_BENCH_TIMED_KERNEL_H_
#define ATTENTION_BENCH_TIMED_KERNEL_H_

#include <optional>

#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/bench/rotated_inputs.h"
#include "attention/cuda_backend.h"
#include "attention/memory.h"

namespace attnlab::bench {

class TimedKernel {
 public:
  // Allocates the workspace. `inputs` are of the plan's problem and device, and outlive this;
  // several kernels may share them.
  static absl::StatusOr<TimedKernel> Make(const Plan& plan, RotatedInputs* inputs);

  // Runs on the next set of inputs and returns the seconds it took: on the CPU by the steady
  // clock; on a GPU between two events in the stream, so without the time to get the launch
  // there, but with the gaps between the launches of one call.
  absl::StatusOr<double> Call();

  const Plan& plan() const { return plan_; }
  RotatedInputs* inputs() { return inputs_; }

 private:
  TimedKernel() = default;

  Plan plan_;
  RotatedInputs* inputs_ = nullptr;
  Buffer workspace_;
  std::optional<cuda_backend::Timer> timer_;  // on a GPU
};

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_TIMED_KERNEL_H_
