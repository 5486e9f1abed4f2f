#include "attention/testing/subject.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/runs_on.h"

namespace attnlab::testing {

absl::StatusOr<Subject> SubjectFor(const Kernel& kernel) {
  if (kernel.traits().device == DeviceKind::kCpu) return Subject{&kernel, Device::Cpu()};
  absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  // A wrong $ATTNLAB_COMPUTE_CAPABILITY is no reason to skip.
  if (absl::IsInvalidArgument(gpus.status())) return gpus.status();
  if (!gpus.ok()) return absl::UnavailableError(gpus.status().message());
  absl::Status why = absl::UnavailableError("no GPU here");
  for (const DeviceInfo& gpu : *gpus) {
    const absl::Status s = RunsOn(kernel.traits(), gpu);
    if (s.ok()) return Subject{&kernel, gpu.device};
    why = absl::UnavailableError(s.message());
  }
  return why;
}

absl::StatusOr<Plan> PlanFor(const Subject& subject, const AttentionProblem& problem,
                             const LaunchConfig& config) {
  absl::StatusOr<DeviceInfo> info = InfoOf(subject.device);
  if (!info.ok()) return info.status();
  // Only here is Unimplemented an answer.
  if (absl::Status s = subject.kernel->Supports(problem, *info, config); !s.ok()) return s;
  absl::StatusOr<int64_t> bytes = subject.kernel->WorkspaceBytes(problem, *info, config);
  if (!bytes.ok()) return NotDeclined(bytes.status());
  Plan plan;
  plan.problem = problem;
  plan.device = *std::move(info);
  plan.config = config;
  plan.kernel = subject.kernel;
  plan.workspace_bytes = *bytes;
  return plan;
}

absl::Status NotDeclined(const absl::Status& s) {
  return s.code() == absl::StatusCode::kUnimplemented
             ? absl::InternalError(absl::StrCat("Supports() says yes, but: ", s.message()))
             : s;
}

}  // namespace attnlab::testing
