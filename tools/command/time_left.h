// Estimates how long calls and whole commands take, for progress lines.
#ifndef TOOLS_COMMAND_TIME_LEFT_H_
#define TOOLS_COMMAND_TIME_LEFT_H_

#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "attention/core/kernel.h"
#include "attention/core/problem.h"

namespace attnlab::command {

// Estimates the time of calls. It measures each kernel per device, on the plan with the most work
// (bench/estimate.h), when that kernel's time is first needed.
class CallTimes {
 public:
  // `plans`: all that Seconds() will be called with.
  explicit CallTimes(const std::vector<Plan>& plans);

  // Seconds of a call; 0 if the kernel fails. `measurements`: at least so many are made of the kernel; the
  // shortest counts.
  double Seconds(const Plan& plan, int measurements = 1);

 private:
  struct Rate {
    Plan largest;
    double flops = -1;
    int measurements = 0;
    double seconds_per_flop = 0;
  };
  std::map<std::pair<const Kernel*, std::string>, Rate> rates_;  // by kernel and device
};

// Seconds that the oracle takes to check a problem. It computes at most `oracle_flops` FLOPs of it.
double OracleSeconds(const AttentionProblem& problem, double oracle_flops);

// The time left of several steps. The time that past steps took corrects the expected seconds of
// the others. No step takes more than `most_extra` seconds longer than expected: a noisy row of a
// benchmark ends at its timeout.
class TimeLeft {
 public:
  explicit TimeLeft(std::vector<double> expected,
                    double most_extra = std::numeric_limits<double>::infinity());

  // The seconds left while step `next` runs; the steps before it are done.
  double Seconds(size_t next);

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<double> expected_;
  const double most_extra_;
  size_t current_ = 0;
  double factor_ = 1;  // seconds taken over seconds expected, for the steps that are done
  const Clock::time_point start_ = Clock::now();
  Clock::time_point step_start_ = start_;
};

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_TIME_LEFT_H_
