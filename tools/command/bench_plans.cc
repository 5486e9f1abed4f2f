#include "tools/command/bench_plans.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/bench/estimate.h"
#include "attention/core/device.h"
#include "attention/oracle/inputs.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

constexpr int64_t kDefaultLengths[] = {4096, 2048, 1024, 512, 256};
constexpr double kPatience = 0.4;  // seconds per call of the default problem

// Seconds per call. Slower kernels are timed only if requested by name: kernels for checking, and
// CPU kernels beside a GPU kernel.
constexpr double kCheckingPatience = 2;
constexpr double kCpuPatience = 10;

bool OnGpu(const Plan& plan) { return plan.device.device.kind == DeviceKind::kCuda; }

}  // namespace

void LeftOut::Add(const absl::Status& status, const std::string& where) {
  blame_.Add(status);
  Note(status, where);
}

void LeftOut::AddInputs(const absl::Status& status, const std::string& where) {
  blame_.AddInputs(status);
  Note(status, where);
}

void LeftOut::Note(const absl::Status& status, const std::string& where) {
  for (Reason& reason : reasons_) {
    if (reason.message != status.message()) continue;
    ++reason.count;
    return;
  }
  reasons_.push_back({std::string(status.message()), where, 1});
}

void LeftOut::Print(std::ostream& out) const {
  for (const Reason& reason : reasons_) {
    out << command_ << ": " << reason.message;
    if (!reason.where.empty()) {
      out << " (" << reason.where;
      if (reason.count > 1) out << " and " << reason.count - 1 << " more";
      out << ")";
    }
    out << "\n";
  }
}

absl::StatusOr<std::vector<Plan>> PlansOf(const AttentionProblem& problem,
                                          const BenchSelection& selection, LeftOut* left_out) {
  const std::string line = problem.ToString();
  std::vector<Plan> plans;
  for (const Kernel* kernel : selection.kernels) {
    const absl::StatusOr<DeviceInfo> device = DeviceFor(selection.device, *kernel);
    if (!device.ok()) {
      if (!LeavesOut(selection.device, device.status())) return device.status();
      left_out->Add(device.status(), "");
      continue;
    }
    // With --device, "all" means the kernels that run on that device.
    if (kernel->traits().device != device->device.kind && !IsNamed(*kernel, selection.names)) {
      continue;
    }
    for (const LaunchConfig& config : selection.configs) {
      absl::StatusOr<Plan> plan = PlanFor(*kernel, problem, *device, config);
      if (plan.ok()) {
        plans.push_back(*std::move(plan));
      } else {
        left_out->Add(plan.status(), line);  // begins with the kernel's name
      }
    }
  }
  if (plans.empty()) return plans;
  oracle::InputOptions inputs;
  inputs.seed = selection.seed;
  if (absl::Status s = oracle::Inputs::Check(problem, inputs); !s.ok()) {
    left_out->AddInputs(s, line);
    plans.clear();
  }
  return plans;
}

void LeaveOutSlow(const BenchSelection& selection, CallTimes* times, std::vector<Plan>* plans,
                  LeftOut* left_out) {
  const bool others = std::any_of(plans->begin(), plans->end(), [](const Plan& plan) {
    return plan.kernel->traits().preference > 0;
  });
  const bool gpus = std::any_of(plans->begin(), plans->end(), OnGpu);
  std::vector<Plan> kept;
  for (Plan& plan : *plans) {
    const KernelTraits& traits = plan.kernel->traits();
    double patience = 0;  // no limit
    if (gpus && !OnGpu(plan)) patience = kCpuPatience;
    if (others && traits.preference == 0) patience = kCheckingPatience;
    const bool wanted = IsNamed(*plan.kernel, selection.names) || traits.name == selection.baseline;
    if (patience > 0 && !wanted && !Interrupt::Pressed()) {
      // A kernel that fails has 0 seconds and is kept: its row will say why. One that seems slow is measured once
      // more, as the machine may have stalled.
      double seconds = times->Seconds(plan);
      if (seconds > patience) seconds = times->Seconds(plan, /*measurements=*/2);
      if (seconds > patience) {
        left_out->Add(
            absl::UnimplementedError(absl::StrCat(
                traits.name, ": left out of ", plan.problem.ToString(), ": about ",
                Duration(seconds), " a call; --kernel=all,", traits.name, " times it anyway")),
            "");
        continue;
      }
    }
    kept.push_back(std::move(plan));
  }
  *plans = std::move(kept);
}

absl::StatusOr<AttentionProblem> DefaultProblem(DType dtype, const BenchSelection& selection) {
  AttentionProblem problem;
  problem.hq = problem.hkv = 8;
  problem.dtype = dtype;
  problem.mask = Mask::Causal();
  for (int64_t length : kDefaultLengths) {
    problem.sq = problem.skv = length;
    if (length == *std::prev(std::end(kDefaultLengths)) || Interrupt::Pressed()) break;
    LeftOut unused("");
    const absl::StatusOr<std::vector<Plan>> plans = PlansOf(problem, selection, &unused);
    if (!plans.ok()) return plans.status();
    double slowest = 0;
    for (const Plan& plan : *plans) {
      // A kernel that fails counts as 0.
      slowest = std::max(slowest, bench::EstimateSeconds(plan).value_or(0));
      if (slowest >= kPatience) break;
    }
    if (slowest < kPatience) break;
  }
  return problem;
}

}  // namespace attnlab::command
