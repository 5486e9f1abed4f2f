#include "attention/bench/timed_kernel.h"

#include <chrono>
#include <utility>

namespace attnlab::bench {

absl::StatusOr<TimedKernel> TimedKernel::Make(const Plan& plan, RotatedInputs* inputs) {
  TimedKernel timed;
  timed.plan_ = plan;
  timed.inputs_ = inputs;
  absl::StatusOr<Buffer> workspace = Buffer::Allocate(plan.device.device, plan.workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  if (absl::Status s = workspace->Fill(0); !s.ok()) return s;
  timed.workspace_ = *std::move(workspace);
  if (plan.device.device.kind == DeviceKind::kCuda) {
    absl::StatusOr<cuda_backend::Timer> timer =
        cuda_backend::Timer::Create(plan.device.device.ordinal);
    if (!timer.ok()) return timer.status();
    timed.timer_.emplace(*std::move(timer));
  }
  return timed;
}

absl::StatusOr<double> TimedKernel::Call() {
  const AttentionTensors& tensors = inputs_->Next();
  const Workspace workspace = {workspace_.data(), workspace_.bytes()};
  if (timer_.has_value()) {
    if (absl::Status s = timer_->Start(nullptr); !s.ok()) return s;
    if (absl::Status s = Forward(plan_, tensors, workspace); !s.ok()) return s;
    return timer_->StopSeconds(nullptr);
  }
  const auto start = std::chrono::steady_clock::now();
  const absl::Status s = Forward(plan_, tensors, workspace);
  const auto stop = std::chrono::steady_clock::now();
  if (!s.ok()) return s;
  return std::chrono::duration<double>(stop - start).count();
}

}  // namespace attnlab::bench
