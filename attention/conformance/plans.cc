#include "attention/conformance/plans.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/registry.h"

namespace attnlab::conformance {
namespace {

struct Candidate {
  std::string kernel;
  LaunchConfig config;
};

std::string NameOf(const std::string& kernel, const LaunchConfig& config) {
  return absl::StrCat(kernel, " [", config.ToString(), "]");
}

absl::StatusOr<std::vector<Candidate>> Candidates(bool with_variants) {
  std::vector<Candidate> candidates;
  for (const Kernel* kernel : Registry::Global().All()) {
    const KernelTraits& traits = kernel->traits();
    if (traits.device != DeviceKind::kCuda || traits.preference == 0) continue;
    candidates.push_back({traits.name, LaunchConfig()});
    if (!with_variants) continue;
    for (const std::string& line : traits.variants) {
      const absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(line);
      if (!config.ok()) return config.status();
      candidates.push_back({traits.name, *config});
    }
  }
  return candidates;
}

}  // namespace

absl::StatusOr<std::vector<Plan>> PlansOfAllKernels(absl::string_view problem, bool with_variants) {
  const absl::StatusOr<AttentionProblem> parsed = AttentionProblem::Parse(problem);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<std::vector<Candidate>> candidates = Candidates(with_variants);
  if (!candidates.ok()) return candidates.status();
  std::vector<Plan> plans;
  for (const Candidate& c : *candidates) {
    const absl::StatusOr<Plan> plan = MakePlan(*parsed, Device::Cuda(0), c.kernel, c.config);
    if (absl::IsUnimplemented(plan.status()) || absl::IsResourceExhausted(plan.status())) continue;
    if (!plan.ok()) return plan.status();
    plans.push_back(*plan);
  }
  return plans;
}

std::string NameOf(const Plan& plan) { return NameOf(plan.kernel->traits().name, plan.config); }

absl::StatusOr<std::vector<std::string>> NeverPlanned(const std::vector<std::string>& problems,
                                                      bool with_variants) {
  const absl::StatusOr<std::vector<Candidate>> candidates = Candidates(with_variants);
  if (!candidates.ok()) return candidates.status();
  std::set<std::string> planned;
  for (const std::string& problem : problems) {
    const absl::StatusOr<std::vector<Plan>> plans = PlansOfAllKernels(problem, with_variants);
    if (!plans.ok()) return plans.status();
    for (const Plan& plan : *plans) planned.insert(NameOf(plan));
  }
  std::vector<std::string> never;
  for (const Candidate& c : *candidates) {
    const std::string name = NameOf(c.kernel, c.config);
    if (planned.count(name) == 0) never.push_back(name);
  }
  return never;
}

}  // namespace attnlab::conformance
