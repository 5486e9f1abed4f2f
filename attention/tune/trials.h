// How the tuner tries candidates: in this process, or, as the attnlab command does, in others.
#ifndef ATTENTION_TUNE_TRIALS_H_
#define ATTENTION_TUNE_TRIALS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/bench/noise.h"

namespace attnlab::tune {

struct Timed {
  absl::Status status;  // why there is no timing
  bench::Timing timing;
};

class Trials {
 public:
  virtual ~Trials() = default;

  // OK if the plan's results agree with the oracle; else what is wrong with them, or how it failed.
  virtual absl::Status Check(const Plan& plan) = 0;

  // Times plans of one problem against each other, in random order, each for `seconds` or until its
  // median is known to `max_noise` (a share of it). One entry per plan.
  virtual absl::StatusOr<std::vector<Timed>> Time(absl::Span<const Plan> plans, double seconds,
                                                  double max_noise) = 0;
};

// In this process, by oracle::Verify() and bench::Compare(). A candidate that crashes takes the
// process with it. After one that breaks the GPU's context, everything fails.
class TrialsHere : public Trials {
 public:
  // `stopped` is asked between calls.
  explicit TrialsHere(std::function<bool()> stopped = nullptr) : stopped_(std::move(stopped)) {}

  absl::Status Check(const Plan& plan) override;
  absl::StatusOr<std::vector<Timed>> Time(absl::Span<const Plan> plans, double seconds,
                                          double max_noise) override;

 private:
  const std::function<bool()> stopped_;
};

}  // namespace attnlab::tune

#endif  // ATTENTION_TUNE_TRIALS_H_
