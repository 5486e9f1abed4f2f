#include "attention/oracle/trial.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/backend.h"
#include "attention/oracle/bare_memory.h"

namespace attnlab::oracle {

Trial::Trial(Plan plan, Inputs inputs, Outputs outputs, FencedBuffer workspace)
    : plan_(std::move(plan)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      workspace_(std::move(workspace)) {}

absl::StatusOr<Trial> Trial::Make(const Plan& plan, const InputOptions& options, bool with_lse) {
  if (plan.prepared == nullptr) {
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
  if (absl::Status s = Prepare(workspace_content); !s.ok()) return s;
  absl::Status done = Start(nullptr);
  if (done.ok() && plan_.device.device.kind == DeviceKind::kCuda) {
    done = OfKernel(cuda_backend::Synchronize(plan_.device.device.ordinal));
  }
  if (!done.ok()) return done;
  return Finish();
}

absl::Status Trial::Prepare(uint16_t workspace_content) {
  absl::Status s = outputs_.Prepare(plan_.problem, inputs_.host_tensors());
  if (!s.ok()) return s;
  if (!BareMemory()) return workspace_.Poison(workspace_content);
  const ByteRange unwritten = {plan_.prepared->CounterBytes(), workspace_.bytes()};
  return workspace_.Renew({&unwritten, 1});
}

absl::Status Trial::Start(void* stream, const Intermediates& intermediates) {
  return OfKernel(Forward(plan_, outputs_.Attach(inputs_.tensors()),
                          {workspace_.data(), workspace_.bytes()}, stream, intermediates));
}

absl::Status Trial::OfKernel(const absl::Status& s) const {
  if (s.ok()) return s;
  return absl::Status(s.code(), absl::StrCat(plan_.kernel->traits().name, ": ",
                                             plan_.problem.ToString(), ": ", s.message()));
}

absl::StatusOr<Trial::Run> Trial::Finish() const {
  absl::StatusOr<HostOutputs> outputs = outputs_.ToHost();
  if (!outputs.ok()) return outputs.status();
  absl::StatusOr<std::string> fault = workspace_.FenceFault("workspace");
  if (!fault.ok()) return fault.status();
  Run run;
  run.faults = absl::StrCat(WriteFaults(plan_.problem, inputs_.host_tensors(), *outputs), *fault);
  run.outputs = *std::move(outputs);
  return run;
}

absl::StatusOr<std::string> Trial::WrittenTo() const {
  const auto untouched = [](const std::vector<uint16_t>& words) {
    return std::all_of(words.begin(), words.end(), [](uint16_t word) { return word == kPoison; });
  };
  absl::StatusOr<HostOutputs> outputs = outputs_.ToHost();
  if (!outputs.ok()) return outputs.status();
  if (!untouched(outputs->o_storage)) return std::string("o");
  if (!untouched(outputs->lse_storage)) return std::string("lse");
  absl::StatusOr<std::vector<uint16_t>> workspace = workspace_.ToHost();
  if (!workspace.ok()) return workspace.status();
  return untouched(*workspace) ? std::string() : std::string("workspace");
}

}  // namespace attnlab::oracle
