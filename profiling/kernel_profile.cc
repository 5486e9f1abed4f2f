#include "profiling/kernel_profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/bench/rotated_inputs.h"
#include "attention/bench/timed_kernel.h"
#include "attention/core/statistics.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"
#include "profiling/counters.h"
#include "profiling/l2_flush.h"

namespace attnlab::profiling {
namespace {

// Seconds of work before timing: the clock of an idle GPU is low at first.
constexpr double kWarmUp = 0.05;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::Status Named(const Plan& plan, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(plan.kernel->traits().name, ": ", status.message()));
}

absl::Status CheckPlans(absl::Span<const Plan> plans) {
  for (const Plan& plan : plans) {
    if (plan.device.device.kind != DeviceKind::kCuda) {
      return absl::UnimplementedError(absl::StrCat("device: ", plan.kernel->traits().name,
                                                   " runs on ", ToString(plan.device.device),
                                                   ", which has no counters; only GPUs do"));
    }
    if (plan.problem != plans[0].problem || plan.device.device != plans[0].device.device) {
      return absl::InvalidArgumentError("plans: must have one problem and one device");
    }
  }
  return absl::OkStatus();
}

// What the kernels of one problem share: a set of inputs, a workspace and the L2 flush.
class Subject {
 public:
  static absl::StatusOr<Subject> Make(absl::Span<const Plan> plans, const ProfileOptions& options) {
    const int ordinal = plans[0].device.device.ordinal;
    absl::StatusOr<std::unique_ptr<L2Flush>> flush = L2Flush::Create(ordinal);
    if (!flush.ok()) return flush.status();
    // One set is enough, because L2 is emptied before each call.
    absl::StatusOr<bench::RotatedInputs> inputs = bench::RotatedInputs::Make(
        plans[0].problem, plans[0].device, options.seed, options.with_lse, /*memory_bytes=*/1);
    if (!inputs.ok()) return inputs.status();
    absl::StatusOr<Buffer> workspace = bench::SharedWorkspace(plans);
    if (!workspace.ok()) return workspace.status();
    return Subject(ordinal, *std::move(flush), *std::move(inputs), *std::move(workspace));
  }

  int ordinal() const { return ordinal_; }
  const Traffic& compulsory() const { return inputs_.compulsory(); }

  absl::Status Run(const Plan& plan, void* stream) {
    return Forward(plan, inputs_.Next(), {workspace_.data(), workspace_.bytes()}, stream);
  }

  absl::Status RunAndWait(const Plan& plan) {
    const absl::Status s = Run(plan, nullptr);
    return s.ok() ? cuda_backend::Synchronize(ordinal_) : s;
  }

  // Asynchronous; L2Flush::kLaunches launches.
  absl::Status EmptyL2(void* stream) { return flush_->Flush(static_cast<cudaStream_t>(stream)); }

 private:
  Subject(int ordinal, std::unique_ptr<L2Flush> flush, bench::RotatedInputs inputs,
          Buffer workspace)
      : ordinal_(ordinal),
        flush_(std::move(flush)),
        inputs_(std::move(inputs)),
        workspace_(std::move(workspace)) {}

  int ordinal_;
  std::unique_ptr<L2Flush> flush_;
  bench::RotatedInputs inputs_;
  Buffer workspace_;
};

// Facts and times. No counters are read here, because counting slows the kernel down.
absl::Status Time(Subject& subject, int64_t repetitions, KernelProfile* profile) {
  const Plan& plan = profile->plan;
  const double begin = Now();
  do {
    if (absl::Status s = subject.RunAndWait(plan); !s.ok()) return s;
  } while (Now() - begin < kWarmUp);
  const auto run = [&](void* stream) { return subject.Run(plan, stream); };
  absl::StatusOr<std::vector<LaunchFacts>> launches = FactsOf(subject.ordinal(), run);
  if (!launches.ok()) return launches.status();
  profile->launches = *std::move(launches);

  std::vector<std::vector<Activity>> timelines;
  for (int64_t i = 0; i < repetitions; ++i) {
    absl::StatusOr<std::vector<Activity>> timeline = TimelineOf(
        subject.ordinal(),
        [&](void* stream) {
          const absl::Status s = subject.EmptyL2(stream);
          return s.ok() ? run(stream) : s;
        },
        /*before=*/L2Flush::kLaunches);
    if (!timeline.ok()) return timeline.status();
    timelines.push_back(*std::move(timeline));
  }
  std::vector<double> spans;
  for (const std::vector<Activity>& timeline : timelines) spans.push_back(SpanOf(timeline));
  profile->seconds = Quantile(spans, 0.5);
  const auto off = [&](double span) { return std::abs(span - profile->seconds); };
  const auto nearest = std::min_element(spans.begin(), spans.end(),
                                        [&](double a, double b) { return off(a) < off(b); });
  profile->timeline = std::move(timelines[static_cast<size_t>(nearest - spans.begin())]);
  return absl::OkStatus();
}

absl::Status Count(Subject& subject, const ProfileOptions& options, KernelProfile* profile) {
  // A call that launches nothing has no range to count.
  if (profile->timeline.empty()) return absl::OkStatus();
  const double begin = Now();
  double own = 0;  // seconds in the kernel's runs
  absl::StatusOr<std::unique_ptr<Counters>> counters =
      Counters::Open(subject.ordinal(), options.set, options.metrics);
  if (!counters.ok()) return counters.status();
  std::vector<std::vector<double>> counted;  // by value, then by repetition
  for (int64_t i = 0; i < options.repetitions; ++i) {
    while (!(*counters)->Done()) {
      if (absl::Status s = subject.EmptyL2(nullptr); !s.ok()) return s;
      absl::StatusOr<Counters::Pass> pass = (*counters)->Begin();
      if (!pass.ok()) return pass.status();
      const double run = Now();
      if (absl::Status s = subject.RunAndWait(profile->plan); !s.ok()) return s;
      own += Now() - run;
      if (absl::Status s = pass->End(); !s.ok()) return s;
      ++profile->counted_calls;
    }
    const absl::StatusOr<std::vector<Value>> values = (*counters)->Read();
    if (!values.ok()) return values.status();
    counted.resize(values->size());
    for (size_t v = 0; v < values->size(); ++v) counted[v].push_back((*values)[v].value);
    profile->counted = *values;
  }
  for (size_t v = 0; v < counted.size(); ++v) {
    profile->counted[v].value = Quantile(counted[v], 0.5);
  }
  profile->overhead_seconds = Now() - begin - own;
  return absl::OkStatus();
}

}  // namespace

std::optional<double> KernelProfile::Counted(absl::string_view name) const {
  for (const Value& value : counted) {
    if (value.name == name) return value.value;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<KernelProfile>> ProfileKernels(absl::Span<const Plan> plans,
                                                          const ProfileOptions& options) {
  if (options.repetitions < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("repetitions: ", options.repetitions, " is less than 1"));
  }
  std::vector<KernelProfile> profiles;
  if (plans.empty()) return profiles;
  if (absl::Status s = CheckPlans(plans); !s.ok()) return s;
  const bool counts = !options.set.empty() || !options.metrics.empty();
  if (counts) {
    // Fail before any work if the counters are not available.
    const absl::Status s =
        Counters::Open(plans[0].device.device.ordinal, options.set, options.metrics).status();
    if (!s.ok()) return s;
  }
  const auto tell = [&](const Plan& plan, absl::string_view what) {
    if (options.progress) options.progress(absl::StrCat(what, " ", plan.kernel->traits().name));
  };
  tell(plans[0], "making inputs of");
  absl::StatusOr<Subject> subject = Subject::Make(plans, options);
  if (!subject.ok()) return subject.status();
  for (const Plan& plan : plans) {
    KernelProfile profile;
    profile.plan = plan;
    profile.compulsory = subject->compulsory();
    const absl::StatusOr<Traffic> expected =
        plan.kernel->ExpectedTraffic(plan.problem, plan.device, plan.config);
    profile.status = expected.status();
    if (expected.ok()) profile.expected = *expected;
    profiles.push_back(std::move(profile));
  }
  const auto each = [&](absl::string_view what, const auto& measure) {
    for (KernelProfile& profile : profiles) {
      if (!profile.status.ok()) continue;
      tell(profile.plan, what);
      profile.status = options.stopped && options.stopped()
                           ? absl::CancelledError("stopped before it was measured")
                           : measure(&profile);
      if (!profile.status.ok()) profile.status = Named(profile.plan, profile.status);
    }
  };
  // Tracing and counting do not overlap: first all activities are traced, then counters are read.
  each("timing", [&](KernelProfile* p) { return Time(*subject, options.repetitions, p); });
  if (counts) each("counting", [&](KernelProfile* p) { return Count(*subject, options, p); });
  return profiles;
}

}  // namespace attnlab::profiling
