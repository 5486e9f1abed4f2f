// Times kernels against each other on one problem, with Google Benchmark as the harness.
//
//   std::vector<Plan> plans = …;  // one problem; several kernels, configurations or devices
//   absl::StatusOr<std::vector<Row>> rows = Compare(plans, {});
//   double speed_up = rows[0].timing.median / rows[1].timing.median;
//
// Each kernel is verified first. Then, one device after the other, repetitions of all kernels of
// that device are run in random order, so that a machine that slows down as it gets warm slows
// all of them down; each repetition is a few calls on inputs that the cache does not hold
// (rotated_inputs.h), and gives their mean time. Inputs are the same numbers on every device.
#ifndef ATTENTION_BENCH_COMPARE_H_
#define ATTENTION_BENCH_COMPARE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/bench/noise.h"
#include "attention/core/problem.h"
#include "attention/oracle/verify.h"

namespace attnlab::bench {

struct Options {
  uint64_t seed = 0;
  bool with_lse = false;
  bool verify = true;
  double seconds = 0.5;           // of timed calls that a kernel gets at least, or
  int64_t max_repetitions = 200;  // this many repetitions in the first round
  int64_t min_repetitions = 5;    // whatever they take
  // Timing goes on until the median of every kernel is known to `max_noise` (a share of it), or its
  // timed calls have taken `timeout` seconds.
  double max_noise = 0.02;
  double timeout = 10;
  // For the sets of inputs on a device. 0: a quarter of what it has, or half of what is free.
  int64_t memory_bytes = 0;
  // Told what is being done, for a progress bar: "verifying cpu", "timing".
  std::function<void(absl::string_view)> progress;
  // Asked between calls: true once it is time to stop. Rows that have a repetition by then are
  // kept; the status of the others is Cancelled.
  std::function<bool()> stopped;
};

struct Row {
  Plan plan;
  // Not OK where the kernel was not timed, with why: it failed, it was stopped, or inputs could
  // not be made (ResourceExhausted). Then nothing below was measured.
  absl::Status status;
  bool verified = false;  // `verification` says more; false too where it was not wanted
  oracle::VerifyResult verification;

  Timing timing;
  int64_t calls_per_repetition = 0;
  ProcessorUse processors;  // while the rows of this device were timed

  // Whether the median is not known to Options::max_noise.
  bool noisy = false;

  int64_t input_sets = 0;
  int64_t set_bytes = 0;
  bool past_cache = false;  // whether the sets together exceed the last-level cache

  Traffic compulsory;  // what any kernel must do
  Traffic expected;    // what this one says that it does

  double TflopPerSecond() const { return compulsory.flops / timing.median * 1e-12; }
  // Compulsory bytes over the time: comparable between kernels.
  double GbPerSecond() const {
    return static_cast<double>(compulsory.Bytes()) / timing.median * 1e-9;
  }
  // Bytes by the kernel's own model over the time: how busy it keeps the memory.
  double MovedGbPerSecond() const {
    return static_cast<double>(expected.Bytes()) / timing.median * 1e-9;
  }
};

// Whether one of the two is faster beyond doubt: the middle 80 % of their repetitions do not
// overlap, nor do their medians with their noise.
bool Differ(const Timing& a, const Timing& b);

// One row a plan, in order. A kernel that gives wrong results is timed all the same, and its row
// says so; one that fails does not keep others from being timed. InvalidArgument when the plans
// are not of one problem.
absl::StatusOr<std::vector<Row>> Compare(absl::Span<const Plan> plans, const Options& options);

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_COMPARE_H_
