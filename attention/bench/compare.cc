#include "attention/bench/compare.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/bench/rotated_inputs.h"
#include "attention/bench/statistics.h"
#include "attention/bench/timed_kernel.h"
#include "attention/machine.h"
#include "benchmark/benchmark.h"

namespace attnlab::bench {
namespace {

constexpr double kShortestRepetition = 200e-6;  // seconds; below, clocks and noise show

// Keeps the time of every repetition, by the benchmark's name, and prints nothing.
class Recorder : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.iterations == 0) continue;
      seconds[run.run_name.function_name].push_back(run.real_accumulated_time /
                                                    static_cast<double>(run.iterations));
    }
  }

  std::map<std::string, std::vector<double>> seconds;
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

absl::Status CheckPlans(absl::Span<const Plan> plans) {
  for (const Plan& plan : plans) {
    if (plan.problem != plans[0].problem || plan.device.device != plans[0].device.device) {
      return absl::InvalidArgumentError("plans: are not of one problem on one device");
    }
  }
  return absl::OkStatus();
}

absl::Status Named(const Plan& plan, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(plan.kernel->traits().name, ": ", status.message()));
}

// How often, from one call that has warmed up and one that is timed.
absl::Status PlanRepetitions(TimedKernel* kernel, const Options& options, Row* row) {
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {
    absl::StatusOr<double> call = kernel->Call();
    if (!call.ok()) return Named(row->plan, call.status());
    seconds = std::max(*call, 1e-9);
    if (seconds > options.seconds) break;  // as slow as this, it was warm long before its end
  }
  row->calls_per_repetition =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kShortestRepetition / seconds)));
  const double repetition = seconds * static_cast<double>(row->calls_per_repetition);
  row->repetitions = std::clamp(static_cast<int64_t>(std::min(options.seconds / repetition, 1e9)),
                                options.min_repetitions,
                                std::max(options.min_repetitions, options.max_repetitions));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Row>> Compare(absl::Span<const Plan> plans, const Options& options) {
  std::vector<Row> rows;
  if (plans.empty()) return rows;
  if (absl::Status s = CheckPlans(plans); !s.ok()) return s;
  const auto tell = [&options](absl::string_view what) {
    if (options.progress) options.progress(what);
  };

  for (const Plan& plan : plans) {
    Row row;
    row.plan = plan;
    if (options.verify) {
      tell(absl::StrCat("verifying ", plan.kernel->traits().name));
      testing::VerifyOptions verify;
      verify.inputs.seed = options.seed;
      verify.rerun = false;  // the conformance suite does that
      absl::StatusOr<testing::VerifyResult> result = testing::Verify(plan, verify);
      row.status = result.status();
      if (result.ok()) {
        row.verified = result->passed;
        row.verification = *std::move(result);
      }
    }
    absl::StatusOr<Traffic> expected =
        plan.kernel->ExpectedTraffic(plan.problem, plan.device, plan.config);
    if (expected.ok()) {
      row.expected = *expected;
    } else if (row.status.ok()) {
      row.status = Named(plan, expected.status());
    }
    rows.push_back(std::move(row));
  }

  tell("making inputs");
  const DeviceInfo& device = plans[0].device;
  absl::StatusOr<RotatedInputs> inputs = RotatedInputs::Make(
      plans[0].problem, device, options.seed, options.with_lse,
      options.memory_bytes > 0 ? options.memory_bytes : device.memory_bytes / 4);
  if (!inputs.ok()) return inputs.status();

  InterleaveRepetitions();
  benchmark::ClearRegisteredBenchmarks();
  std::list<TimedKernel> kernels;  // keeps addresses
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    row.input_sets = inputs->sets();
    row.set_bytes = inputs->set_bytes();
    row.past_cache = inputs->past_cache();
    row.compulsory = inputs->compulsory();
    if (!row.status.ok()) continue;
    absl::StatusOr<TimedKernel> made = TimedKernel::Make(row.plan, &*inputs);
    if (!made.ok()) {
      row.status = Named(row.plan, made.status());
      continue;
    }
    kernels.push_back(*std::move(made));
    TimedKernel* kernel = &kernels.back();
    tell(absl::StrCat("timing ", row.plan.kernel->traits().name));
    row.status = PlanRepetitions(kernel, options, &row);
    if (!row.status.ok()) continue;
    absl::Status* error = &row.status;
    benchmark::RegisterBenchmark(absl::StrCat(i).c_str(),
                                 [kernel, error](benchmark::State& state) {
                                   for (auto _ : state) {
                                     const absl::StatusOr<double> seconds = kernel->Call();
                                     if (!seconds.ok()) {
                                       *error = Named(kernel->plan(), seconds.status());
                                       state.SkipWithError("the kernel failed");
                                       break;
                                     }
                                     state.SetIterationTime(*seconds);
                                   }
                                 })
        ->UseManualTime()
        ->Iterations(row.calls_per_repetition)
        ->Repetitions(static_cast<int>(row.repetitions));
  }
  tell("timing");
  Recorder recorder;
  const bool any =
      std::any_of(rows.begin(), rows.end(), [](const Row& r) { return r.status.ok(); });
  if (any) benchmark::RunSpecifiedBenchmarks(&recorder, "all");
  benchmark::ClearRegisteredBenchmarks();

  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    if (!row.status.ok()) continue;
    const std::vector<double>& seconds = recorder.seconds[absl::StrCat(i)];
    if (seconds.empty()) {
      return absl::InternalError(absl::StrCat(row.plan.kernel->traits().name, ": was not timed"));
    }
    row.repetitions = static_cast<int64_t>(seconds.size());
    row.median = Quantile(seconds, 0.5);
    row.p10 = Quantile(seconds, 0.1);
    row.p90 = Quantile(seconds, 0.9);
  }
  return rows;
}

absl::StatusOr<double> EstimateSeconds(const Plan& plan) {
  constexpr int64_t kLength = 256;
  AttentionProblem part = plan.problem;
  part.b = 1;
  part.lens = Lengths::kFixed;
  part.sq = std::min(part.sq, kLength);
  part.skv = std::min(part.skv, kLength);
  absl::StatusOr<Plan> small =
      MakePlan(part, plan.device.device, plan.kernel->traits().name, plan.config);
  if (!small.ok()) return small.status();
  absl::StatusOr<RotatedInputs> inputs =
      RotatedInputs::Make(part, plan.device, /*seed=*/0, /*with_lse=*/false, /*memory_bytes=*/1);
  if (!inputs.ok()) return inputs.status();
  absl::StatusOr<TimedKernel> kernel = TimedKernel::Make(*small, &*inputs);
  if (!kernel.ok()) return kernel.status();
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<double> seconds = kernel->Call();
    if (!seconds.ok()) return seconds.status();
    best = i == 0 ? *seconds : std::min(best, *seconds);
  }
  const double part_flops = CompulsoryTraffic(part).flops;
  if (part_flops <= 0) return best;
  return best * std::max(1.0, CompulsoryTraffic(plan.problem).flops / part_flops);
}

}  // namespace attnlab::bench
