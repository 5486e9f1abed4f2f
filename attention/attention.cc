#include "attention/attention.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/runs_on.h"
#include "attention/core/stop.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"

namespace attnlab {
namespace {

// The plan of a kernel, if the kernel is built for the device.
absl::StatusOr<Plan> PlanBy(const Kernel& kernel, const AttentionProblem& problem,
                            const DeviceInfo& device, const LaunchConfig& config) {
  if (absl::Status s = RunsOn(kernel.traits(), device); !s.ok()) return s;
  return MakePlan(kernel, problem, device, config);
}

absl::Status Prefixed(absl::string_view prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

absl::StatusOr<Plan> Choose(const AttentionProblem& problem, const DeviceInfo& device,
                            const LaunchConfig& config) {
  Plan best, otherwise;
  // Of two plans the one with the higher preference.
  const auto prefer = [&](const Plan& plan, Plan& chosen) {
    if (chosen.kernel != nullptr && plan.kernel->PreferenceFor(problem, device) <=
                                        chosen.kernel->PreferenceFor(problem, device)) {
      return;
    }
    chosen = plan;
  };
  std::string reasons;
  bool any_of_device = false, all_invalid = true, any_too_large = false;
  for (const Kernel* kernel : Registry::Global().All()) {
    absl::StatusOr<Plan> plan = PlanBy(*kernel, problem, device, config);
    if (!plan.ok()) {
      const absl::Status& s = plan.status();
      absl::StrAppend(&reasons, "\n  ", kernel->traits().name, ": ", s.message());
      if (kernel->traits().device != device.device.kind) continue;
      any_of_device = true;
      all_invalid = all_invalid && absl::IsInvalidArgument(s);
      any_too_large = any_too_large || absl::IsResourceExhausted(s);
      continue;
    }
    prefer(*plan, best);
    if (!kernel->traits().needs_aligned_rows) prefer(*plan, otherwise);
  }
  if (best.kernel != nullptr) {
    if (best.kernel->traits().needs_aligned_rows && otherwise.kernel != nullptr) {
      best.workspace_bytes = std::max(best.workspace_bytes, otherwise.workspace_bytes);
      best.otherwise = std::make_shared<const Plan>(std::move(otherwise));
    }
    return best;
  }
  // A configuration that no kernel of the device accepts is the caller's mistake. A problem that a
  // kernel would do if it fitted is too large.
  const absl::StatusCode code = any_of_device && all_invalid ? absl::StatusCode::kInvalidArgument
                                : any_too_large              ? absl::StatusCode::kResourceExhausted
                                                             : absl::StatusCode::kUnimplemented;
  return absl::Status(code, absl::StrCat("no kernel of this program supports ", problem.ToString(),
                                         " on ", ToString(device.device),
                                         reasons.empty() ? "; none is linked" : ":", reasons));
}

// With launch.adds, nothing but the plan's own kernel: of the others, none can add.
absl::Status Run(const Plan& plan, const AttentionTensors& tensors, const Launch& launch) {
  const Workspace& workspace = launch.workspace;
  const Intermediates& intermediates = launch.intermediates;
  if (plan.prepared == nullptr) {
    return absl::InvalidArgumentError("plan: has no kernel; MakePlan() makes plans");
  }
  if (absl::Status s = ValidateTensors(plan.problem, tensors); !s.ok()) return s;
  if (tensors.q.device != plan.device.device) {
    return absl::InvalidArgumentError(absl::StrCat("q: on ", ToString(tensors.q.device),
                                                   ", but the plan is for ",
                                                   ToString(plan.device.device)));
  }
  if (absl::Status s = plan.prepared->Accepts(tensors); !s.ok()) {
    if (plan.otherwise == nullptr || launch.adds) return Prefixed(plan.kernel->traits().name, s);
    return Run(*plan.otherwise, tensors, launch);
  }
  if (launch.adds && !plan.prepared->CanAdd()) {
    return absl::UnimplementedError(
        absl::StrCat(plan.kernel->traits().name, ": cannot add to O of other keys"));
  }
  if (launch.adds && tensors.lse.data == nullptr) {
    return absl::InvalidArgumentError(
        "lse: missing, but O of other keys cannot be added without it");
  }
  if (plan.workspace_bytes > 0) {
    if (workspace.data == nullptr || workspace.bytes < plan.workspace_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("workspace: ", workspace.data == nullptr ? 0 : workspace.bytes,
                       " bytes, but ", plan.workspace_bytes, " are needed"));
    }
    if (reinterpret_cast<uintptr_t>(workspace.data) % kMemoryAlignment != 0) {
      return absl::InvalidArgumentError(absl::StrCat("workspace: address ",
                                                     reinterpret_cast<uintptr_t>(workspace.data),
                                                     " is not a multiple of ", kMemoryAlignment));
    }
    absl::Status s = ValidateScratch(tensors, "workspace", workspace.data, workspace.bytes);
    if (!s.ok()) return s;
  }
  if (intermediates.wanted() && !plan.kernel->traits().gives_intermediates) {
    return absl::UnimplementedError(
        absl::StrCat("intermediates: ", plan.kernel->traits().name, " does not provide them"));
  }
  const std::pair<absl::string_view, const TensorView&> kWanted[] = {
      {"scores", intermediates.scores}, {"probabilities", intermediates.probabilities}};
  for (const auto& [name, view] : kWanted) {
    if (view.data == nullptr) continue;
    absl::Status s = ValidateRows(plan.problem, tensors, name, view, plan.problem.skv);
    if (s.ok() && plan.workspace_bytes > 0) {
      s = ValidateScratch(name, view, "workspace", workspace.data, workspace.bytes);
    }
    if (!s.ok()) return s;
  }
  const absl::Status s = plan.prepared->Run(tensors, launch);
  if (s.ok() && plan.device.device.kind == DeviceKind::kCpu && Stopping()) {
    return absl::CancelledError(absl::StrCat(plan.kernel->traits().name, ": stopped"));
  }
  return s;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const AttentionProblem& problem, Device device,
                              absl::string_view kernel, const LaunchConfig& config) {
  if (absl::Status s = problem.Validate(); !s.ok()) return s;
  if (absl::Status s = Registry::Global().Check(); !s.ok()) return s;
  absl::StatusOr<DeviceInfo> info = InfoOf(device);
  if (!info.ok()) return info.status();
  if (kernel.empty()) return Choose(problem, *info, config);
  absl::StatusOr<const Kernel*> named = Registry::Global().Find(kernel);
  if (!named.ok()) return named.status();
  absl::StatusOr<Plan> plan = PlanBy(**named, problem, *info, config);
  if (!plan.ok()) return Prefixed((*named)->traits().name, plan.status());
  return plan;
}

absl::StatusOr<Plan> MakePlan(const Kernel& kernel, const AttentionProblem& problem,
                              const DeviceInfo& device, const LaunchConfig& config) {
  absl::StatusOr<std::unique_ptr<const Prepared>> prepared =
      kernel.Prepare(problem, device, config);
  if (!prepared.ok()) return prepared.status();
  const int64_t workspace_bytes = (*prepared)->WorkspaceBytes();
  return Plan{problem, device, config, &kernel, *std::move(prepared), workspace_bytes};
}

absl::Status Forward(const Plan& plan, const AttentionTensors& tensors, Workspace workspace,
                     void* stream, const Intermediates& intermediates) {
  return Run(plan, tensors, {workspace, stream, intermediates});
}

absl::Status ForwardAdding(const Plan& plan, const AttentionTensors& tensors, Workspace workspace,
                           void* stream, bool may_start_early) {
  return Run(plan, tensors,
             {workspace, stream, /*intermediates=*/{}, /*adds=*/true, may_start_early});
}

absl::Status ForwardOnce(const AttentionProblem& problem, const AttentionTensors& tensors,
                         absl::string_view kernel, const LaunchConfig& config) {
  absl::StatusOr<Plan> plan = MakePlan(problem, tensors.q.device, kernel, config);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<Buffer> scratch = Buffer::Allocate(tensors.q.device, plan->workspace_bytes);
  if (!scratch.ok()) return scratch.status();
  absl::Status done = Forward(*plan, tensors, {scratch->data(), scratch->bytes()});
  if (done.ok() && tensors.q.device.kind == DeviceKind::kCuda) {
    done = cuda_backend::Synchronize(tensors.q.device.ordinal);
  }
  return done;
}

}  // namespace attnlab
