// Finds the fastest configuration of a kernel for a class of problems on this machine.
//
//   Cache cache("/home/me/.cache/attnlab/tuning.json");
//   TrialsHere trials;
//   absl::StatusOr<Tuned> tuned = GetOrTune(problem, device, {}, cache, trials);
//   absl::StatusOr<Plan> plan = MakePlan(problem, device.device, tuned->kernel, tuned->choice.config);
//
// A program that must not wait uses what was tuned before:
//
//   absl::StatusOr<Plan> plan = MakeTunedPlan(problem, Device::Cuda(0), cache);
//
// The search. Candidates are the combinations of KernelTraits::tunable that the kernel takes. Each
// is checked against the oracle; those that fail
// are out. The others and the kernel's own choice are timed against each other for a short time.
// The few that may be the fastest are timed again, for longer. One of them replaces the kernel's own
// choice only if it is faster beyond doubt (bench::Differ): the noise of a busy machine decides for
// what there is.
#ifndef ATTENTION_TUNE_TUNE_H_
#define ATTENTION_TUNE_TUNE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"
#include "attention/tune/cache.h"
#include "attention/tune/trials.h"

namespace attnlab::tune {

struct Options {
  std::string kernel;   // empty: the one that MakePlan() chooses
  double seconds = 30;  // for one class; a trial that has begun is finished
  bool anew = false;    // tune even if the cache has a choice
  // Told what is being done, and the seconds that are left.
  std::function<void(absl::string_view what, double seconds_left)> progress;
  // Asked between trials: true once it is time to stop.
  std::function<bool()> stopped;
};

struct Rejected {
  LaunchConfig config;
  std::string reason;
};

struct Tuned {
  std::string kernel;
  AttentionProblem problem;  // what was timed: the representative of the class
  Choice choice;
  bool from_cache = false;
  bool kept = false;  // the cache has it now
  // What the search did; empty if from_cache.
  int64_t candidates = 0;          // besides the kernel's own choice
  std::vector<Rejected> rejected;  // wrong, or failed
  int64_t untried = 0;             // because the time was over
  std::string remark;              // what was wrong with the cache, or ""
};

// Returns the choice for the problem's class, from the cache or else by a search whose result it
// stores, unless candidates were left untried. A cache that cannot be written is no error: `remark` says so.
//
// Errors: those of MakePlan() for the kernel's own choice; Internal if that choice is wrong or
// cannot be timed; Unavailable if the machine has not enough memory for it; Cancelled if options.stopped() was
// true. Nothing is stored then.
absl::StatusOr<Tuned> GetOrTune(const AttentionProblem& problem, const DeviceInfo& device,
                                const Options& options, const Cache& cache, Trials& trials);

// MakePlan() with the configuration that the cache has for the problem's class, if it has one that
// the kernel takes for this problem. Errors are those of MakePlan() without a configuration.
absl::StatusOr<Plan> MakeTunedPlan(const AttentionProblem& problem, Device device,
                                   const Cache& cache, absl::string_view kernel = "");

}  // namespace attnlab::tune

#endif  // ATTENTION_TUNE_TUNE_H_
