#include "attention/tune/tune.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "attention/bench/compare.h"
#include "attention/tune/problem_class.h"

namespace attnlab::tune {
namespace {

// Shares of the time: for the checks, and for the first timing.
constexpr double kForChecks = 0.5, kForFirst = 0.25;
// The most that the second timing compares with the kernel's own choice.
constexpr size_t kFinalists = 3;
constexpr double kFirstNoise = 0.05, kFinalNoise = 0.01;

// The time that a search has, and whom it tells.
class Clock {
 public:
  explicit Clock(const Options& options)
      : options_(options), end_(absl::Now() + absl::Seconds(options.seconds)) {}

  double Left() const { return std::max(0.0, absl::ToDoubleSeconds(end_ - absl::Now())); }
  void Tell(absl::string_view what) const {
    if (options_.progress) options_.progress(what, Left());
  }
  bool Stopped() const { return options_.stopped && options_.stopped(); }

 private:
  const Options& options_;
  const absl::Time end_;
};

// The fastest and the slowest that the median may be.
double Least(const bench::Timing& t) { return t.median * (1 - t.noise); }
double Most(const bench::Timing& t) { return t.median * (1 + t.noise); }

// All combinations of tunable values, in which a key may also be left to the kernel; not the empty
// one.
std::vector<LaunchConfig> CandidatesOf(const KernelTraits& traits) {
  std::vector<LaunchConfig> configs = {{}};
  for (const auto& [key, values] : traits.tunable) {
    const size_t without = configs.size();
    for (const std::string& value : values) {
      for (size_t i = 0; i < without; ++i) {
        configs.push_back(configs[i]);
        configs.back().Set(key, value);
      }
    }
  }
  configs.erase(configs.begin());
  return configs;
}

// The representative of the class, as a plan. If the kernel declines it, the problem itself is.
absl::StatusOr<Plan> PlanOfClass(const Plan& plan) {
  absl::StatusOr<Plan> of_class = MakePlan(*plan.kernel, ClassOf(plan.problem), plan.device);
  if (of_class.ok()) return of_class;
  return MakePlan(*plan.kernel, plan.problem, plan.device);
}

// The first entry is the kernel's own choice, and is in any case part of the result.
struct Contest {
  std::vector<Plan> plans;
  std::vector<bench::Timing> timings;
};

// Without the kernel's own choice there is nothing to compare with.
absl::Status OfOwnChoice(absl::string_view what, const absl::Status& s) {
  const bool is_of_plan = !absl::IsCancelled(s) && !absl::IsUnavailable(s);
  return absl::Status(is_of_plan ? absl::StatusCode::kInternal : s.code(),
                      absl::StrCat("the kernel's own choice ", what, ": ", s.message()));
}

absl::Status TimeAll(double seconds, double noise, Trials& trials, Contest* contest,
                     std::vector<Rejected>* rejected) {
  const double each = std::max(0.02, seconds / static_cast<double>(contest->plans.size()));
  const absl::StatusOr<std::vector<Timed>> timed = trials.Time(contest->plans, each, noise);
  if (!timed.ok()) return OfOwnChoice("cannot be timed", timed.status());
  Contest left;
  for (size_t i = 0; i < timed->size(); ++i) {
    const Plan& plan = contest->plans[i];
    const Timed& t = (*timed)[i];
    if (t.status.ok()) {
      left.plans.push_back(plan);
      left.timings.push_back(t.timing);
    } else if (i == 0) {
      return OfOwnChoice("cannot be timed", t.status);
    } else {
      rejected->push_back({plan.config, std::string(t.status.message())});
    }
  }
  *contest = std::move(left);
  return absl::OkStatus();
}

// Keeps the kernel's own choice and the fastest of those that may be faster than all others.
void KeepFinalists(Contest* contest) {
  std::vector<size_t> order;
  double best = Most(contest->timings[0]);
  for (size_t i = 1; i < contest->plans.size(); ++i) {
    order.push_back(i);
    best = std::min(best, Most(contest->timings[i]));
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return contest->timings[a].median < contest->timings[b].median;
  });
  Contest kept = {{contest->plans[0]}, {contest->timings[0]}};
  for (size_t i : order) {
    if (kept.plans.size() > kFinalists || Least(contest->timings[i]) > best) break;
    kept.plans.push_back(contest->plans[i]);
    kept.timings.push_back(contest->timings[i]);
  }
  *contest = std::move(kept);
}

Choice ChoiceOf(const Contest& contest) {
  size_t best = 0;
  for (size_t i = 1; i < contest.plans.size(); ++i) {
    const bench::Timing& t = contest.timings[i];
    if (t.median < contest.timings[best].median && bench::Differ(t, contest.timings[0])) best = i;
  }
  return {contest.plans[best].config, contest.timings[best].median, contest.timings[0].median};
}

absl::Status Search(const Plan& own, const Options& options, Trials& trials, Tuned* tuned) {
  const Clock clock(options);
  clock.Tell("checking the kernel's own choice");
  if (absl::Status s = trials.Check(own); !s.ok()) {
    return OfOwnChoice("is wrong or fails", s);
  }
  Contest contest;
  contest.plans.push_back(own);
  for (const LaunchConfig& config : CandidatesOf(own.kernel->traits())) {
    absl::StatusOr<Plan> plan = MakePlan(*own.kernel, own.problem, own.device, config);
    if (!plan.ok()) continue;  // not for this problem
    ++tuned->candidates;
    if (clock.Stopped()) return absl::CancelledError("tuning was stopped");
    if (clock.Left() < (1 - kForChecks) * options.seconds) {
      ++tuned->untried;
      continue;
    }
    clock.Tell(absl::StrCat("checking ", config.ToString()));
    if (absl::Status s = trials.Check(*plan); !s.ok()) {
      tuned->rejected.push_back({config, std::string(s.message())});
    } else {
      contest.plans.push_back(*std::move(plan));
    }
  }
  clock.Tell(absl::StrCat("timing ", contest.plans.size()));
  absl::Status s =
      TimeAll(kForFirst * options.seconds, kFirstNoise, trials, &contest, &tuned->rejected);
  if (!s.ok()) return s;
  KeepFinalists(&contest);
  if (clock.Stopped()) return absl::CancelledError("tuning was stopped");
  if (contest.plans.size() > 1) {
    clock.Tell(absl::StrCat("timing the fastest ", contest.plans.size()));
    // On a busy machine, the first round may have taken the time of this one.
    s = TimeAll(std::max(clock.Left(), kForFirst * options.seconds), kFinalNoise, trials, &contest,
                &tuned->rejected);
    if (!s.ok()) return s;
  }
  if (clock.Stopped()) return absl::CancelledError("tuning was stopped");
  tuned->choice = ChoiceOf(contest);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tuned> GetOrTune(const AttentionProblem& problem, const DeviceInfo& device,
                                const Options& options, const Cache& cache, Trials& trials) {
  const absl::StatusOr<Plan> plan = MakePlan(problem, device.device, options.kernel);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<Plan> own = PlanOfClass(*plan);
  if (!own.ok()) return own.status();
  Tuned tuned;
  tuned.kernel = own->kernel->traits().name;
  tuned.problem = own->problem;
  const absl::StatusOr<Key> key = KeyOf(device, tuned.kernel, own->problem.ToString());
  if (!key.ok()) return key.status();
  if (!options.anew) {
    const std::optional<Choice> found = cache.Find(*key, &tuned.remark);
    // What the kernel declines is not to be trusted.
    if (found && MakePlan(*own->kernel, own->problem, device, found->config).ok()) {
      tuned.choice = *found;
      tuned.from_cache = tuned.kept = true;
      return tuned;
    }
  }
  if (absl::Status s = Search(*own, options, trials, &tuned); !s.ok()) {
    return absl::Status(s.code(), absl::StrCat(tuned.kernel, ": ", s.message()));
  }
  // The next search may have more time.
  if (tuned.untried > 0) return tuned;
  const absl::Status s = cache.Store(*key, tuned.choice, &tuned.remark);
  tuned.kept = s.ok();
  if (!s.ok()) tuned.remark = absl::StrCat(s.message(), "; the choice is not kept");
  return tuned;
}

absl::StatusOr<Plan> MakeTunedPlan(const AttentionProblem& problem, Device device,
                                   const Cache& cache, absl::string_view kernel) {
  absl::StatusOr<Plan> plan = MakePlan(problem, device, kernel);
  if (!plan.ok()) return plan;
  const absl::StatusOr<Plan> own = PlanOfClass(*plan);
  if (!own.ok()) return plan;
  const absl::StatusOr<Key> key =
      KeyOf(plan->device, plan->kernel->traits().name, own->problem.ToString());
  if (!key.ok()) return plan;
  std::string remark;
  const std::optional<Choice> found = cache.Find(*key, &remark);
  if (!found || found->config.empty()) return plan;
  absl::StatusOr<Plan> tuned = MakePlan(*plan->kernel, problem, plan->device, found->config);
  if (!tuned.ok()) return plan;
  tuned->otherwise = plan->otherwise;
  return tuned;
}

}  // namespace attnlab::tune
