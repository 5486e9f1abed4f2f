#include "attention/testing/trial.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/cuda_backend.h"

namespace attnlab::testing {

Trial::Trial(Plan plan, Inputs inputs, Outputs outputs, FencedBuffer workspace)
    : plan_(std::move(plan)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      workspace_(std::move(workspace)) {}

absl::StatusOr<Trial> Trial::Make(const Plan& plan, const InputOptions& options, bool with_lse) {
  if (plan.kernel == nullptr) {
    return absl::InvalidArgumentError("plan: has no kernel; MakePlan() makes plans");
  }
  absl::StatusOr<Inputs> inputs = Inputs::Make(plan.problem, plan.device.device, options);
  if (!inputs.ok()) return inputs.status();
  absl::StatusOr<Outputs> outputs =
      Outputs::Make(plan.problem, inputs->tensors(), options.layout, with_lse);
  if (!outputs.ok()) return outputs.status();
  absl::StatusOr<FencedBuffer> workspace =
      FencedBuffer::Make(plan.device.device, plan.workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  return Trial(plan, *std::move(inputs), *std::move(outputs), *std::move(workspace));
}

absl::StatusOr<Trial::Run> Trial::RunOnce(uint16_t workspace_content) {
  if (absl::Status s = outputs_.Poison(); !s.ok()) return s;
  if (absl::Status s = workspace_.Poison(workspace_content); !s.ok()) return s;
  absl::Status done =
      Forward(plan_, outputs_.Attach(inputs_.tensors()), {workspace_.data(), workspace_.bytes()});
  if (done.ok() && plan_.device.device.kind == DeviceKind::kCuda) {
    done = cuda_backend::Synchronize(plan_.device.device.ordinal);
  }
  if (!done.ok()) {
    return absl::Status(done.code(), absl::StrCat(plan_.kernel->traits().name, ": ",
                                                  plan_.problem.ToString(), ": ", done.message()));
  }
  absl::StatusOr<HostOutputs> outputs = outputs_.ToHost();
  if (!outputs.ok()) return outputs.status();
  absl::StatusOr<std::string> fault = workspace_.FenceFault("workspace");
  if (!fault.ok()) return fault.status();
  Run run;
  run.faults = absl::StrCat(WriteFaults(plan_.problem, inputs_.host_tensors(), *outputs), *fault);
  run.outputs = *std::move(outputs);
  return run;
}

}  // namespace attnlab::testing
