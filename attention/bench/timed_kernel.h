// One kernel on rotated inputs, timed.
#ifndef ATTENTION_BENCH_TIMED_KERNEL_H_
#define ATTENTION_BENCH_TIMED_KERNEL_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/bench/rotated_inputs.h"
#include "attention/core/device.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"

namespace attnlab::bench {

class TimedKernel {
 public:
  // `inputs` are of the plan's problem and device, and `workspace` is on that device and large
  // enough for the plan. Both outlive this; kernels that run in turn may share them.
  static absl::StatusOr<TimedKernel> Make(const Plan& plan, RotatedInputs* inputs,
                                          Buffer* workspace);

  // Runs on the next sets of inputs, one a call, and returns the seconds that all calls took: on
  // the CPU by the steady clock; on a GPU between two events in the stream. The GPU finds the
  // next call queued when one ends, so of the time to get launches there only the first call's
  // counts, unless launching takes longer than running.
  absl::StatusOr<double> Calls(int64_t calls);
  absl::StatusOr<double> Call() { return Calls(1); }

  const Plan& plan() const { return plan_; }
  RotatedInputs* inputs() { return inputs_; }

 private:
  TimedKernel() = default;

  Plan plan_;
  RotatedInputs* inputs_ = nullptr;
  Buffer* workspace_ = nullptr;
  std::optional<cuda_backend::Timer> timer_;  // on a GPU
};

// A workspace for whichever of these plans runs, all of one device. Its pages have been written.
// ResourceExhausted when there is not enough memory.
absl::StatusOr<Buffer> SharedWorkspace(absl::Span<const Plan> plans);

// How many calls of so many seconds are timed as one repetition: as many as make it long beside
// the clock's resolution and, on a GPU, beside getting the first launch there.
int64_t CallsPerRepetition(Device device, double call_seconds);

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_TIMED_KERNEL_H_
