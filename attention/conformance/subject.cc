#include "attention/conformance/subject.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/runs_on.h"
#include "attention/cuda/machine.h"

namespace attnlab::conformance {

absl::StatusOr<Subject> SubjectFor(const Kernel& kernel) {
  if (kernel.traits().device == DeviceKind::kCpu) return Subject{&kernel, Device::Cpu()};
  absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  // A wrong $ATTNLAB_COMPUTE_CAPABILITY must fail, not skip.
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
  // Unimplemented means "declines" only here.
  return MakePlan(*subject.kernel, problem, *info, config);
}

absl::Status NotDeclined(const absl::Status& s) {
  return s.code() == absl::StatusCode::kUnimplemented
             ? absl::InternalError(absl::StrCat("Supports() says yes, but: ", s.message()))
             : s;
}

}  // namespace attnlab::conformance
