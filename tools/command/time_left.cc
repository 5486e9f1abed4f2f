#include "tools/command/time_left.h"

#include <algorithm>
#include <numeric>

#include "attention/bench/estimate.h"
#include "attention/core/device.h"
#include "attention/cuda/machine.h"
#include "tools/lib/interrupt.h"

namespace attnlab::command {
namespace {

// FLOP/s of a check against the oracle, per thread: about right for processors of 2023.
constexpr double kOracleRate = 1.5e9;

}  // namespace

CallTimes::CallTimes(const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    Rate& rate = rates_[{plan.kernel, ToString(plan.device.device)}];
    const double flops = CompulsoryTraffic(plan.problem).flops;
    if (flops <= rate.flops) continue;
    rate.largest = plan;
    rate.flops = flops;
  }
}

double CallTimes::Seconds(const Plan& plan, int measurements) {
  const auto found = rates_.find({plan.kernel, ToString(plan.device.device)});
  if (found == rates_.end()) return 0;
  Rate& rate = found->second;
  while (rate.measurements < measurements && !Interrupt::Pressed()) {
    const double measured =
        bench::EstimateSeconds(rate.largest).value_or(0) / std::max(rate.flops, 1.0);
    rate.seconds_per_flop =
        rate.measurements == 0 ? measured : std::min(rate.seconds_per_flop, measured);
    ++rate.measurements;
  }
  return rate.seconds_per_flop * CompulsoryTraffic(plan.problem).flops;
}

double OracleSeconds(const AttentionProblem& problem, double oracle_flops) {
  const double rate = kOracleRate * std::max(CpuInfo().threads, 1);
  return std::min(CompulsoryTraffic(problem).flops, oracle_flops) / rate;
}

TimeLeft::TimeLeft(std::vector<double> expected, double most_extra)
    : expected_(std::move(expected)), most_extra_(most_extra) {}

double TimeLeft::Seconds(size_t next) {
  const Clock::time_point now = Clock::now();
  if (next > current_) {
    const auto end = expected_.begin() + static_cast<int64_t>(next);
    const double done = std::accumulate(expected_.begin(), end, 0.0);
    // Short steps say little: most of their time is overhead.
    if (done > 1) factor_ = std::chrono::duration<double>(now - start_).count() / done;
    current_ = next;
    step_start_ = now;
  }
  const double gone = std::chrono::duration<double>(now - step_start_).count();
  double left = -gone;
  for (size_t i = current_; i < expected_.size(); ++i) {
    left += std::min(factor_ * expected_[i], expected_[i] + most_extra_);
  }
  return std::max(left, 0.0);
}

}  // namespace attnlab::command
