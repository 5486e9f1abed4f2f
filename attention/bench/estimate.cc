#include "attention/bench/estimate.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "attention/bench/rotated_inputs.h"
#include "attention/bench/timed_kernel.h"
#include "attention/core/problem.h"
#include "attention/cuda/memory.h"

namespace attnlab::bench {
namespace {

// Tokens of the first part: a small problem for any kernel, seconds for none.
constexpr int64_t kFirstLength = 256;
// Seconds. A call as long as this is no longer a matter of launches, idle threads and low clocks.
constexpr double kLongEnough = 20e-3;
constexpr int kCalls = 3;  // the first warms up; the shortest counts

absl::StatusOr<double> TimePart(const AttentionProblem& part, const Plan& whole) {
  const absl::StatusOr<Plan> plan = MakePlan(*whole.kernel, part, whole.device, whole.config);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<RotatedInputs> inputs =
      RotatedInputs::Make(part, whole.device, /*seed=*/0, /*with_lse=*/false, /*memory_bytes=*/1);
  if (!inputs.ok()) return inputs.status();
  absl::StatusOr<Buffer> workspace = SharedWorkspace({*plan});
  if (!workspace.ok()) return workspace.status();
  absl::StatusOr<TimedKernel> kernel = TimedKernel::Make(*plan, &*inputs, &*workspace);
  if (!kernel.ok()) return kernel.status();
  double best = 0;
  for (int i = 0; i < kCalls; ++i) {
    const absl::StatusOr<double> seconds = kernel->Call();
    if (!seconds.ok()) return seconds.status();
    best = i == 0 ? *seconds : std::min(best, *seconds);
  }
  return best;
}

}  // namespace

absl::StatusOr<double> EstimateSeconds(const Plan& plan) {
  return EstimateSeconds(plan.problem,
                         [&plan](const AttentionProblem& part) { return TimePart(part, plan); });
}

absl::StatusOr<double> EstimateSeconds(
    const AttentionProblem& whole,
    absl::FunctionRef<absl::StatusOr<double>(const AttentionProblem& part)> time) {
  AttentionProblem part = whole;
  part.lens = Lengths::kFixed;
  int64_t length = kFirstLength;
  part.b = 1;
  for (;;) {
    part.sq = std::min(whole.sq, length);
    part.skv = std::min(whole.skv, length);
    const absl::StatusOr<double> seconds = time(part);
    if (!seconds.ok()) return seconds.status();
    const bool all_tokens = part.sq == whole.sq && part.skv == whole.skv;
    const double flops = CompulsoryTraffic(part).flops;
    if (all_tokens && flops <= 0) return *seconds;
    if (flops > 0 && (*seconds >= kLongEnough || (all_tokens && part.b == whole.b))) {
      return *seconds * std::max(1.0, CompulsoryTraffic(whole).flops / flops);
    }
    // Longer sequences first: their cost grows differently from that of a batch.
    if (all_tokens) {
      part.b = std::min(whole.b, 2 * part.b);
    } else {
      length *= 2;
    }
  }
}

}  // namespace attnlab::bench
