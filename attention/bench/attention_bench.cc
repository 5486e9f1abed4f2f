// The linked kernels as Google Benchmarks, with all of its flags:
//
//   bazel run //attention/bench -- --benchmark_filter=cpu --benchmark_repetitions=20
//   bazel run //attention/bench -- hq=8,sq=1024,d=64,dtype=fp32 hq=8,sq=1024,d=128,dtype=fp32
//
// Arguments that are not flags are problems in the one-line form. A benchmark is one kernel on one
// problem. It is verified before it is timed, and fails if the result is wrong.
//
// Exit codes: 0; 1 if a benchmark failed; 2 for a line that is not a problem; 3 if no linked kernel
// supports any problem on this machine.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/bench/rotated_inputs.h"
#include "attention/bench/timed_kernel.h"
#include "attention/core/problem.h"
#include "attention/core/registry.h"
#include "attention/core/statistics.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"
#include "attention/oracle/verify.h"
#include "benchmark/benchmark.h"
#include "tools/lib/arguments.h"

namespace attnlab::bench {
namespace {

constexpr const char* kDefaultProblems[] = {
    "b=1,hq=8,sq=512,d=64,dtype=fp32,mask=causal",
    "b=1,hq=8,sq=1,skv=4096,d=64,dtype=fp32",
};

bool g_failed = false;  // benchmarks run one after the other

void Fail(benchmark::State& state, const absl::Status& status) {
  g_failed = true;
  state.SkipWithError(std::string(status.message()).c_str());
}

// Verifies in the benchmark's first run, so that benchmarks that were filtered out cost nothing,
// and keeps the inputs for later runs.
class Benchmark {
 public:
  explicit Benchmark(Plan plan) : plan_(std::move(plan)) {}

  void operator()(benchmark::State& state) {
    if (!ready_) {
      status_ = Prepare();
      ready_ = true;
    }
    if (!status_.ok()) {
      Fail(state, status_);
      return;
    }
    // Google Benchmark decides how many batches of `calls_` calls to run.
    while (state.KeepRunningBatch(calls_)) {
      const absl::StatusOr<double> seconds = kernel_->Calls(calls_);
      if (!seconds.ok()) {
        Fail(state, seconds.status());
        return;
      }
      state.SetIterationTime(*seconds);
    }
    using benchmark::Counter;
    const Traffic& work = inputs_->compulsory();
    constexpr auto kRate = Counter::kIsIterationInvariantRate;
    state.counters["FLOP/s"] = Counter(work.flops, kRate);
    state.counters["B/s"] = Counter(static_cast<double>(work.Bytes()), kRate);
    state.counters["moved_B/s"] = Counter(static_cast<double>(expected_.Bytes()), kRate);
    state.counters["input_sets"] = static_cast<double>(inputs_->sets());
    state.counters["error"] = error_;
    state.counters["bound"] = bound_;
  }

 private:
  absl::Status Prepare() {
    oracle::VerifyOptions options;
    options.reruns = 0;
    absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(plan_, options);
    if (!result.ok()) return result.status();
    if (!result->passed) return absl::DataLossError(result->message);
    error_ = result->o.max_error;
    bound_ = result->o.bound;
    absl::StatusOr<Traffic> expected =
        plan_.kernel->ExpectedTraffic(plan_.problem, plan_.device, plan_.config);
    if (!expected.ok()) return expected.status();
    expected_ = *expected;
    absl::StatusOr<RotatedInputs> inputs = RotatedInputs::Make(
        plan_.problem, plan_.device, /*seed=*/0, /*with_lse=*/false, plan_.device.memory_bytes / 4);
    if (!inputs.ok()) return inputs.status();
    inputs_.emplace(*std::move(inputs));
    absl::StatusOr<Buffer> workspace = SharedWorkspace({plan_});
    if (!workspace.ok()) return workspace.status();
    workspace_ = *std::move(workspace);
    absl::StatusOr<TimedKernel> kernel = TimedKernel::Make(plan_, &*inputs_, &workspace_);
    if (!kernel.ok()) return kernel.status();
    kernel_.emplace(*std::move(kernel));
    for (int i = 0; i < 2; ++i) {  // the first one warms up
      const absl::StatusOr<double> seconds = kernel_->Call();
      if (!seconds.ok()) return seconds.status();
      calls_ = CallsPerRepetition(plan_.device.device, *seconds);
    }
    return absl::OkStatus();
  }

  Plan plan_;
  bool ready_ = false;
  absl::Status status_;
  double error_ = 0, bound_ = 0;
  Traffic expected_;
  std::optional<RotatedInputs> inputs_;
  Buffer workspace_;
  std::optional<TimedKernel> kernel_;
  int64_t calls_ = 1;  // calls per timing
};

// One benchmark for each device and kernel that supports the problem.
int Register(const AttentionProblem& problem, const std::vector<Device>& devices) {
  int count = 0;
  for (const Device& device : devices) {
    for (const Kernel* kernel : Registry::Global().All()) {
      absl::StatusOr<Plan> plan = MakePlan(problem, device, kernel->traits().name);
      if (!plan.ok()) continue;
      const std::string name = absl::StrCat(kernel->traits().name, "/", problem.ToString());
      auto shared = std::make_shared<Benchmark>(*std::move(plan));
      benchmark::RegisterBenchmark(name.c_str(),
                                   [shared](benchmark::State& state) { (*shared)(state); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond)
          ->ComputeStatistics("p10", [](const std::vector<double>& v) { return Quantile(v, 0.1); })
          ->ComputeStatistics("p90", [](const std::vector<double>& v) { return Quantile(v, 0.9); });
      ++count;
    }
  }
  return count;
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<Device> devices = {Device::Cpu()};
  if (CudaInfo().ok()) devices.push_back(Device::Cuda(0));
  std::vector<std::string> lines;
  ArgumentParser parser(
      "attention_bench",
      "Google Benchmark on every kernel that supports a problem; takes its flags, too.");
  parser.AddPositional("[PROBLEM ...]", &lines);
  if (const std::optional<int> code = parser.ParseMain(argc, argv)) return *code;
  if (lines.empty()) lines.assign(std::begin(kDefaultProblems), std::end(kDefaultProblems));
  for (const std::string& line : lines) {
    absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
    if (!problem.ok()) {
      std::fprintf(stderr, "%s: %s\n", line.c_str(),
                   std::string(problem.status().message()).c_str());
      return 2;
    }
    if (Register(*problem, devices) == 0) {
      std::fprintf(stderr, "%s: no linked kernel supports this here\n", line.c_str());
      return 3;
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return g_failed ? 1 : 0;
}

}  // namespace
}  // namespace attnlab::bench

int main(int argc, char** argv) { return attnlab::bench::Main(argc, argv); }
