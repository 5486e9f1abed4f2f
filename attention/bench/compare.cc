#include "attention/bench/compare.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/bench/noise.h"
#include "attention/bench/rotated_inputs.h"
#include "attention/bench/timed_kernel.h"
#include "attention/core/device.h"
#include "attention/core/parallel.h"
#include "attention/cuda/memory.h"
#include "benchmark/benchmark.h"

namespace attnlab::bench {
namespace {

// Seconds of calls before a kernel is timed, at least two calls. A GPU that was idle while inputs
// were made runs at a low clock at first.
constexpr double kWarmUpOnGpu = 0.05;

// Prints nothing: times are kept where they are taken.
class SilentReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

// Google Benchmark's repetitions of several benchmarks in random order.
void InterleaveRepetitions() {
  static const bool kDone = [] {
    std::string arguments[] = {"attnlab", "--benchmark_enable_random_interleaving=true"};
    char* argv[] = {&arguments[0][0], &arguments[1][0], nullptr};
    int argc = 2;
    benchmark::Initialize(&argc, argv);
    return true;
  }();
  (void)kDone;
}

absl::Status Named(const Plan& plan, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(plan.kernel->traits().name, ": ", status.message()));
}

bool Stopped(const Options& options) { return options.stopped && options.stopped(); }

absl::Status NotTimed(const Plan& plan) {
  return Named(plan, absl::CancelledError("stopped before it was timed"));
}

void Tell(const Options& options, absl::string_view what) {
  if (options.progress) options.progress(what);
}

Row VerifiedRow(const Plan& plan, const Options& options) {
  Row row;
  row.plan = plan;
  if (Stopped(options)) {
    row.status = NotTimed(plan);
    return row;
  }
  if (options.verify) {
    Tell(options, absl::StrCat("verifying ", plan.kernel->traits().name));
    oracle::VerifyOptions verify;
    verify.inputs.seed = options.seed;
    verify.reruns = 0;  // the conformance suite does that
    absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(plan, verify);
    row.status = result.status();
    if (result.ok()) {
      row.verified = result->passed;
      row.verification = *std::move(result);
    }
  }
  const absl::StatusOr<Traffic> expected =
      plan.kernel->ExpectedTraffic(plan.problem, plan.device, plan.config);
  if (expected.ok()) {
    row.expected = *expected;
  } else if (row.status.ok()) {
    row.status = Named(plan, expected.status());
  }
  return row;
}

// What sets of inputs may take, on the device and, of a GPU, as much again on the host.
int64_t InputBytes(const Options& options, const DeviceInfo& device) {
  if (options.memory_bytes > 0) return options.memory_bytes;
  int64_t bytes = device.memory_bytes / 4;
  for (const Device& place : {device.device, Device::Cpu()}) {
    const absl::StatusOr<int64_t> free = FreeMemory(place);
    if (free.ok()) bytes = std::min(bytes, *free / 2);
  }
  return bytes;
}

// A row that is being timed.
struct Timed {
  TimedKernel kernel;
  Row* row;
  std::vector<Repetition> repetitions;
  int64_t next = 0;    // repetitions of the next round
  double seconds = 0;  // that they have taken, with what lies between them
};

// How many repetitions come first, from calls that have warmed up and one that is timed.
absl::Status PlanRepetitions(const Options& options, Timed* timed) {
  TimedKernel* const kernel = &timed->kernel;
  Row* const row = timed->row;
  const Device device = row->plan.device.device;
  const double warm_up = device.kind == DeviceKind::kCuda ? kWarmUpOnGpu : 0;
  double seconds = 0, sum = 0;
  for (int i = 0; i < 2 || sum < warm_up; ++i) {
    const absl::StatusOr<double> call = kernel->Call();
    if (!call.ok()) return Named(row->plan, call.status());
    seconds = std::max(*call, 1e-9);
    sum += seconds;
    if (seconds > options.seconds) break;  // as slow as this, it was warm long before its end
  }
  row->calls_per_repetition = CallsPerRepetition(device, seconds);
  const double repetition = seconds * static_cast<double>(row->calls_per_repetition);
  timed->next = std::clamp(static_cast<int64_t>(std::min(options.seconds / repetition, 1e9)),
                           options.min_repetitions,
                           std::max(options.min_repetitions, options.max_repetitions));
  return absl::OkStatus();
}

// On a busy machine, threads that spin fall in step with the time slices of the other programs, and
// no repetition finds all of them on a processor. Threads that have slept get one at once. The call
// wakes all of them.
void FallOutOfStep(Timed* timed) {
  if (!timed->row->processors.Busy() || timed->repetitions.back().Calm()) return;
  const auto count = static_cast<int64_t>(timed->repetitions.size());
  std::this_thread::sleep_for(std::chrono::milliseconds(1 + count % 5));
  timed->kernel.Call().status().IgnoreError();  // one that fails does so again when timed
}

// OpenMP starts and ends threads when a call uses more or fewer of them than the last one did. An
// untimed call does so before threads are listed and the clock runs.
void SettleThreads(int last_threads, Timed* timed) {
  if (!timed->repetitions.empty() && timed->repetitions.back().threads == last_threads) return;
  timed->kernel.Call().status().IgnoreError();  // one that fails does so again when timed
}

// One repetition: some calls, or none when it is time to stop or the kernel has failed. Google
// Benchmark needs as many iterations of every repetition, so the loop is entered all the same.
// `threads` are those of the last repetition, of any kernel.
void Repeat(benchmark::State& state, const Options& options, int* threads, Timed* timed) {
  Row* const row = timed->row;
  const int64_t calls = row->calls_per_repetition;
  while (state.KeepRunningBatch(calls)) {
    if (!row->status.ok() || Stopped(options)) {
      state.SkipWithError("the kernel has failed, or it is time to stop");
      break;
    }
    const auto start = std::chrono::steady_clock::now();
    SettleThreads(*threads, timed);
    if (!timed->repetitions.empty()) FallOutOfStep(timed);
    TakeMostThreads();
    const ThreadClocks clocks;
    const absl::StatusOr<double> seconds = timed->kernel.Calls(calls);
    const double used = clocks.Seconds();
    *threads = std::max(1, TakeMostThreads());
    if (!seconds.ok()) {
      // A call that was stopped is one that was not timed.
      if (!absl::IsCancelled(seconds.status())) row->status = Named(row->plan, seconds.status());
      state.SkipWithError("the kernel failed, or was stopped");
      break;
    }
    state.SetIterationTime(*seconds);
    timed->seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    timed->repetitions.push_back(
        {*seconds / static_cast<double>(calls), used / *seconds, *threads, calls});
  }
}

// One round of repetitions of all kernels, in random order.
void TimeRound(const Options& options, std::list<Timed>* timed) {
  int threads = 0;
  benchmark::ClearRegisteredBenchmarks();
  for (Timed& one : *timed) {
    if (one.next == 0 || !one.row->status.ok()) continue;
    benchmark::RegisterBenchmark(
        one.row->plan.kernel->traits().name.c_str(),
        [&](benchmark::State& state) { Repeat(state, options, &threads, &one); })
        ->UseManualTime()
        ->Iterations(one.row->calls_per_repetition)
        ->Repetitions(static_cast<int>(one.next));
  }
  SilentReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter, "all");
  benchmark::ClearRegisteredBenchmarks();
}

// Sets the row's timing, and how many repetitions come next: as many as there are, within the time
// that is left, until the noise is low enough.
void Evaluate(const Options& options, const ProcessorUse& use, Timed* timed) {
  Row* const row = timed->row;
  timed->next = 0;
  if (!row->status.ok()) return;
  const auto count = static_cast<int64_t>(timed->repetitions.size());
  if (count == 0) {
    row->status = Stopped(options) ? NotTimed(row->plan)
                                   : Named(row->plan, absl::InternalError("was not timed"));
    return;
  }
  row->processors = use;
  row->timing = Evaluate(timed->repetitions, use, options.min_repetitions);
  row->noisy = row->timing.noise > options.max_noise;
  if (!row->noisy || Stopped(options)) return;
  const double left =
      (options.timeout - timed->seconds) / (timed->seconds / static_cast<double>(count));
  timed->next = std::clamp<int64_t>(static_cast<int64_t>(left), 0, count);
}

// Times rows of one device. An error is one that keeps all of them from being timed.
absl::Status TimeOnDevice(const DeviceInfo& device, const std::vector<Row*>& rows,
                          const Options& options) {
  Tell(options, "making inputs");
  std::vector<Plan> plans;
  for (const Row* row : rows) plans.push_back(row->plan);
  absl::StatusOr<Buffer> workspace = SharedWorkspace(plans);
  if (!workspace.ok()) return workspace.status();
  absl::StatusOr<RotatedInputs> inputs = RotatedInputs::Make(
      plans[0].problem, device, options.seed, options.with_lse, InputBytes(options, device));
  if (!inputs.ok()) return inputs.status();

  InterleaveRepetitions();
  std::list<Timed> timed;  // keeps addresses
  for (Row* row : rows) {
    row->input_sets = inputs->sets();
    row->set_bytes = inputs->set_bytes();
    row->past_cache = inputs->past_cache();
    row->compulsory = inputs->compulsory();
    if (Stopped(options)) {
      row->status = NotTimed(row->plan);
      continue;
    }
    absl::StatusOr<TimedKernel> kernel = TimedKernel::Make(row->plan, &*inputs, &*workspace);
    if (!kernel.ok()) {
      row->status = Named(row->plan, kernel.status());
      continue;
    }
    Tell(options, absl::StrCat("timing ", row->plan.kernel->traits().name));
    timed.push_back({*std::move(kernel), row, {}});
    row->status = PlanRepetitions(options, &timed.back());
  }
  Tell(options, "timing");
  const ProcessorMeter meter;
  const auto more = [](const Timed& one) { return one.next > 0 && one.row->status.ok(); };
  while (std::any_of(timed.begin(), timed.end(), more)) {
    TimeRound(options, &timed);
    // On a GPU, the time between two events does not depend on who else uses the CPU.
    const ProcessorUse use = device.device.kind == DeviceKind::kCpu ? meter.Use() : ProcessorUse();
    for (Timed& one : timed) Evaluate(options, use, &one);
    Tell(options, "timing until the noise is low");
  }
  return absl::OkStatus();
}

}  // namespace

bool Differ(const Timing& a, const Timing& b) {
  const Timing& fast = a.median < b.median ? a : b;
  const Timing& slow = a.median < b.median ? b : a;
  return fast.p90 < slow.p10 && fast.median * (1 + fast.noise) < slow.median * (1 - slow.noise);
}

absl::StatusOr<std::vector<Row>> Compare(absl::Span<const Plan> plans, const Options& options) {
  std::vector<Row> rows;
  for (const Plan& plan : plans) {
    if (plan.problem != plans[0].problem) {
      return absl::InvalidArgumentError(absl::StrCat("plans: ", plan.problem.ToString(), " and ",
                                                     plans[0].problem.ToString(),
                                                     " are different problems"));
    }
  }
  for (const Plan& plan : plans) rows.push_back(VerifiedRow(plan, options));

  // One device after the other: a GPU that waits while the CPU is timed lowers its clock.
  std::vector<bool> done(rows.size(), false);
  for (size_t first = 0; first < rows.size(); ++first) {
    if (done[first]) continue;
    const DeviceInfo device = rows[first].plan.device;
    std::vector<Row*> same;
    for (size_t i = first; i < rows.size(); ++i) {
      if (rows[i].plan.device.device != device.device) continue;
      done[i] = true;
      if (rows[i].status.ok()) same.push_back(&rows[i]);
    }
    if (same.empty()) continue;
    const absl::Status s = TimeOnDevice(device, same, options);
    if (s.ok()) continue;
    for (Row* row : same) row->status = Named(row->plan, s);
  }
  return rows;
}

}  // namespace attnlab::bench
