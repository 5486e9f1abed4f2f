#include "attention/bench/timed_kernel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace attnlab::bench {
namespace {

// Seconds. A launch takes some 5 µs to reach an idle GPU.
constexpr double kShortestOnCpu = 200e-6;
constexpr double kShortestOnGpu = 1e-3;

}  // namespace

absl::StatusOr<TimedKernel> TimedKernel::Make(const Plan& plan, RotatedInputs* inputs,
                                              Buffer* workspace) {
  TimedKernel timed;
  timed.plan_ = plan;
  timed.inputs_ = inputs;
  timed.workspace_ = workspace;
  if (plan.device.device.kind == DeviceKind::kCuda) {
    absl::StatusOr<cuda_backend::Timer> timer =
        cuda_backend::Timer::Create(plan.device.device.ordinal);
    if (!timer.ok()) return timer.status();
    timed.timer_.emplace(*std::move(timer));
  }
  return timed;
}

absl::StatusOr<double> TimedKernel::Calls(int64_t calls) {
  const Workspace workspace = {workspace_->data(), workspace_->bytes()};
  const auto forward = [&]() -> absl::Status {
    for (int64_t i = 0; i < calls; ++i) {
      if (absl::Status s = Forward(plan_, inputs_->Next(), workspace); !s.ok()) return s;
    }
    return absl::OkStatus();
  };
  if (timer_.has_value()) {
    if (absl::Status s = timer_->Start(nullptr); !s.ok()) return s;
    if (absl::Status s = forward(); !s.ok()) return s;
    return timer_->StopSeconds(nullptr);
  }
  const auto start = std::chrono::steady_clock::now();
  const absl::Status s = forward();
  const auto stop = std::chrono::steady_clock::now();
  if (!s.ok()) return s;
  return std::chrono::duration<double>(stop - start).count();
}

absl::StatusOr<Buffer> SharedWorkspace(absl::Span<const Plan> plans) {
  int64_t bytes = 0;
  for (const Plan& plan : plans) bytes = std::max(bytes, plan.workspace_bytes);
  absl::StatusOr<Buffer> workspace =
      Buffer::Allocate(plans.empty() ? Device::Cpu() : plans[0].device.device, bytes);
  if (!workspace.ok()) return workspace;
  if (absl::Status s = workspace->Fill(0); !s.ok()) return s;
  return workspace;
}

int64_t CallsPerRepetition(Device device, double call_seconds) {
  const double shortest = device.kind == DeviceKind::kCuda ? kShortestOnGpu : kShortestOnCpu;
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(shortest / std::max(call_seconds, 1e-9))));
}

}  // namespace attnlab::bench
