// How well the median of timed repetitions is known, and what disturbed them.
#ifndef ATTENTION_BENCH_NOISE_H_
#define ATTENTION_BENCH_NOISE_H_

#include <time.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace attnlab::bench {

// One repetition, in the order they were timed.
struct Repetition {
  double seconds = 0;     // of a call
  double processors = 0;  // CPU seconds of all threads over wall-clock seconds
  int threads = 1;        // that the kernel used
  int64_t calls = 1;

  // Whether all threads had a processor all the time.
  bool Calm() const;
};

// CPU seconds since this object was made, of the threads that the process had then. A thread that
// has ended counts as 0. The process's own clock counts threads on other processors only at their
// timer ticks, every few milliseconds.
class ThreadClocks {
 public:
  ThreadClocks();
  double Seconds() const;

 private:
  std::vector<std::pair<clockid_t, double>> clocks_;  // with their time at the start
};

// Processors of this machine that were in use, on average over an interval.
struct ProcessorUse {
  double available = 0;  // those that this process may run on
  double others = 0;     // used by other processes or, on a virtual machine, by other machines

  // Whether others used enough of them to slow this process down.
  bool Busy() const { return others > 0.05 * available; }
};

// Counts processor use from its construction on, from /proc/stat. Where that cannot be read,
// nothing is available and nobody else uses anything.
class ProcessorMeter {
 public:
  ProcessorMeter();
  ProcessorUse Use() const;

 private:
  struct Reading {
    double available = 0, busy = 0, own = 0, wall = 0;  // all but the first in seconds
  };
  static Reading Read();
  Reading start_;
};

// Half of the 99.7 % confidence interval of the median over the median, from order statistics, or
// half the difference between the medians of the first and the second half if that is more: a
// machine that changes its speed shows there. Of 95 % intervals, one row in twenty would be wrong.
// 1 for fewer than two values.
double MedianNoise(const std::vector<double>& values);

// A median and how far off it may be.
struct Timing {
  double median = 0, p10 = 0, p90 = 0;  // seconds of a call
  double noise = 0;                     // the true median lies within median × (1 ± noise)
  int64_t repetitions = 0;              // that these figures are of
  int64_t disturbed = 0;                // left out: a thread waited for a processor
};

// Estimates what an idle machine would show. On a busy machine:
//
//   - Repetitions in which a thread waited for a processor are left out, if `min_repetitions`
//     others remain. Those still share caches and memory with the other programs, so the noise
//     reaches down to the fastest of them.
//   - Otherwise every repetition was slowed down, and the noise reaches down to the fastest one
//     times the share of the processors that others left free. Where that is not much longer than a
//     time slice of the scheduler, it may have been nothing but waiting: the noise is 1.
Timing Evaluate(const std::vector<Repetition>& repetitions, const ProcessorUse& use,
                int64_t min_repetitions);

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_NOISE_H_
