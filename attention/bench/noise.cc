#include "attention/bench/noise.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "attention/core/statistics.h"

namespace attnlab::bench {
namespace {

// A repetition is undisturbed if each of its threads used a processor for this share of the time.
// OpenMP's threads spin, rather than sleep, while they wait for each other.
constexpr double kCalm = 0.97;

// The share of its processors that a disturbed repetition uses well: its threads also spin while
// they wait for one that has no processor. A margin, with which tools/dev/check_noise.py finds no
// row wrong (docs/measuring.md).
constexpr double kSpin = 0.75;

// Seconds. A few time slices of Linux's scheduler (3 to 8 ms each).
constexpr double kShort = 30e-3;

// Seconds; 0 for the clock of a thread that has ended.
double Clock(clockid_t clock) {
  timespec now = {};
  if (clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The processors that this process may run on; all of them where more than cpu_set_t holds.
bool MayRunOn(const cpu_set_t* set, int cpu) { return set == nullptr || CPU_ISSET(cpu, set); }

}  // namespace

ThreadClocks::ThreadClocks() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const auto id = static_cast<unsigned>(std::stoul(entry.path().filename().string()));
    // As pthread_getcpuclockid() makes it, which needs a pthread_t: clock 2 of a thread.
    const auto clock = static_cast<clockid_t>((~id << 3) | 4 | 2);
    clocks_.emplace_back(clock, Clock(clock));
  }
}

double ThreadClocks::Seconds() const {
  double seconds = 0;
  for (const auto& [clock, start] : clocks_) seconds += std::max(0.0, Clock(clock) - start);
  return seconds;
}

ProcessorMeter::Reading ProcessorMeter::Read() {
  Reading reading;
  cpu_set_t mask;
  const cpu_set_t* const set = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? &mask : nullptr;
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line) && line.compare(0, 3, "cpu") == 0;) {
    std::istringstream words(line.substr(3));
    int cpu = 0;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    if (line[3] == ' ' || !(words >> cpu) || cpu >= CPU_SETSIZE || !MayRunOn(set, cpu)) continue;
    words >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
    reading.available += 1;
    reading.busy += tick * (user + nice + system + irq + soft + steal);
  }
  reading.own = Clock(CLOCK_PROCESS_CPUTIME_ID);
  reading.wall = Clock(CLOCK_MONOTONIC);
  return reading;
}

ProcessorMeter::ProcessorMeter() : start_(Read()) {}

ProcessorUse ProcessorMeter::Use() const {
  const Reading now = Read();
  ProcessorUse use;
  use.available = now.available;
  const double wall = now.wall - start_.wall;
  if (wall <= 0) return use;
  const double others = ((now.busy - start_.busy) - (now.own - start_.own)) / wall;
  use.others = std::clamp(others, 0.0, use.available);
  return use;
}

double MedianNoise(const std::vector<double>& values) {
  if (values.size() < 2) return 1;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double n = static_cast<double>(sorted.size());
  const double reach = 1.5 * std::sqrt(n);  // 3 standard deviations of a binomial with p = 1/2
  const auto at = [&](double rank) {
    return sorted[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  const double interval = at(std::ceil((n - 1) / 2 + reach)) - at(std::floor((n - 1) / 2 - reach));
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  const double drift =
      std::abs(Quantile({values.begin(), middle}, 0.5) - Quantile({middle, values.end()}, 0.5));
  return std::min(1.0, std::max(interval, drift) / 2 / Quantile(values, 0.5));
}

bool Repetition::Calm() const { return processors >= kCalm * threads; }

Timing Evaluate(const std::vector<Repetition>& repetitions, const ProcessorUse& use,
                int64_t min_repetitions) {
  std::vector<double> seconds;
  for (const Repetition& r : repetitions) seconds.push_back(r.seconds);
  double slowed = 0;  // how much faster an idle machine may be, as a share of the median
  if (use.Busy() && !seconds.empty()) {
    std::vector<double> calm;
    for (const Repetition& r : repetitions) {
      if (r.Calm()) calm.push_back(r.seconds);
    }
    double share = 1;  // of the time of the fastest repetition, that an idle machine takes
    if (static_cast<int64_t>(calm.size()) >= min_repetitions) {
      seconds = std::move(calm);
    } else {
      const double wall = Quantile(seconds, 0) * static_cast<double>(repetitions[0].calls);
      share = wall < kShort ? 0 : kSpin * std::max(0.0, 1 - use.others / use.available);
    }
    slowed = 1 - share * Quantile(seconds, 0) / Quantile(seconds, 0.5);
  }
  Timing timing;
  timing.repetitions = static_cast<int64_t>(seconds.size());
  timing.disturbed = static_cast<int64_t>(repetitions.size()) - timing.repetitions;
  timing.median = Quantile(seconds, 0.5);
  timing.p10 = Quantile(seconds, 0.1);
  timing.p90 = Quantile(seconds, 0.9);
  timing.noise = std::max(MedianNoise(seconds), slowed);
  return timing;
}

}  // namespace attnlab::bench
