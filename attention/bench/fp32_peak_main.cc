// The fraction of the GPU's fp32 rate that kernels on CUDA cores reach. The rate is measured before
// and after them in the same run (bench/fp32_peak.h), and the smaller fraction counts.
//
//   fp32_peak_main --kernels=NAMES [--at_least=0.4] [--json=FILE] [PROBLEM …]
//
// Problems are in the one-line form. The default is every head dim with as many (sequence, head)
// pairs as an H200 has multiprocessors, and longer sequences for some head dims. Each kernel is
// verified against the oracle on the problem, then timed on random inputs (bench/compare.h). FLOPs
// count the pairs that the mask allows. FILE is written once everything is measured. Exit status:
// 0; 1 if a result is wrong or a fraction is below --at_least; 2 for what cannot be run; 3 without
// a GPU.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attention/attention.h"
#include "attention/bench/compare.h"
#include "attention/bench/fp32_peak.h"
#include "attention/core/problem.h"
#include "attention/core/statistics.h"
#include "attention/cuda/call.h"
#include "attention/cuda/machine.h"
#include "tools/lib/arguments.h"
#include "tools/lib/json.h"

namespace attnlab::bench {
namespace {

constexpr int kPeakRepetitions = 25;

struct Flags {
  std::vector<std::string> kernels;
  std::vector<AttentionProblem> problems;
  std::string json;
  double at_least = 0;
};

std::vector<std::string> DefaultProblems() {
  std::vector<std::string> problems;
  const auto add = [&](absl::string_view s, absl::string_view dim) {
    for (const char* mask : {"none", "causal"}) {
      problems.push_back(absl::StrCat("b=4,hq=33,sq=", s, ",d=", dim, ",dtype=fp32,mask=", mask));
    }
  };
  for (const char* dim : {"32", "64", "96", "128", "192", "256"}) add("2048", dim);
  for (const char* dim : {"64", "128", "256"}) add("8192", dim);
  return problems;
}

// The median of the GPU's current rate, TFLOP/s.
absl::StatusOr<double> Peak() {
  std::vector<double> tflops;
  absl::Status s =
      cuda_backend::ToStatus(MeasureFp32Peak(kPeakRepetitions, &tflops), "MeasureFp32Peak");
  if (!s.ok()) return s;
  return Quantile(tflops, 0.5);
}

absl::StatusOr<std::vector<Row>> Time(const AttentionProblem& problem, const Flags& flags) {
  std::vector<Plan> plans;
  for (const std::string& kernel : flags.kernels) {
    const absl::StatusOr<Plan> plan = MakePlan(problem, Device::Cuda(0), kernel);
    if (!plan.ok()) return plan.status();
    plans.push_back(*plan);
  }
  return Compare(plans, {});
}

absl::StatusOr<bool> Run(const Flags& flags) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  if (!gpu.ok()) return gpu.status();
  const cuda_backend::ScopedDevice current(0);
  if (!current.status().ok()) return current.status();

  absl::StatusOr<JsonFile> file = JsonFile::Create(flags.json);
  if (!file.ok()) return file.status();

  bool passed = true;
  Json rows = Json::array();
  std::printf(
      "%s\n\n| problem | kernel | ms | TFLOP/s | peak | fraction |\n|---|---|---|---|---|---|\n",
      gpu->name.c_str());
  for (const AttentionProblem& problem : flags.problems) {
    const absl::StatusOr<double> before = Peak();
    if (!before.ok()) return before.status();
    const absl::StatusOr<std::vector<Row>> timed = Time(problem, flags);
    if (!timed.ok()) return timed.status();
    const absl::StatusOr<double> after = Peak();
    if (!after.ok()) return after.status();
    const double peak = std::max(*before, *after);
    for (const Row& row : *timed) {
      if (!row.status.ok()) return row.status;
      const double fraction = row.TflopPerSecond() / peak;
      passed = passed && row.verified && fraction >= flags.at_least;
      const std::string line = row.plan.problem.ToString();
      const std::string& kernel = row.plan.kernel->traits().name;
      std::printf("| %s | %s | %.3f | %.2f | %.2f | %.3f |%s\n", line.c_str(), kernel.c_str(),
                  row.timing.median * 1e3, row.TflopPerSecond(), peak, fraction,
                  row.verified ? "" : " WRONG");
      if (!row.verified) std::fprintf(stderr, "%s\n", row.verification.message.c_str());
      rows.push_back({{"problem", line},
                      {"kernel", kernel},
                      {"median_ms", row.timing.median * 1e3},
                      {"p10_ms", row.timing.p10 * 1e3},
                      {"p90_ms", row.timing.p90 * 1e3},
                      {"repetitions", row.timing.repetitions},
                      {"tflops", row.TflopPerSecond()},
                      {"peak_before_tflops", *before},
                      {"peak_after_tflops", *after},
                      {"fraction", fraction},
                      {"correct", row.verified}});
    }
  }
  const absl::Status s = file->Write({{"gpu", gpu->name},
                                      {"multiprocessors", gpu->multiprocessors},
                                      {"commit", CommitOfEnvironment()},
                                      {"rows", rows}});
  if (!s.ok()) return s;
  return passed;
}

int Main(int argc, char** argv) {
  Flags flags;
  std::string kernels;
  std::vector<std::string> lines;
  ArgumentParser parser(
      "fp32_peak_main",
      "Compares CUDA-core kernels with the GPU's peak rate of fp32 multiply-adds.");
  parser.AddPositional("[PROBLEM ...]", &lines);
  parser.AddString("kernels", "NAMES", &kernels, "Kernels to time, as in fa1,fa2.");
  parser.AddNumber("at_least", "X", &flags.at_least, 0, 1, "Fail below this fraction [0].");
  parser.AddString("json", "FILE", &flags.json, "Write the rows as JSON, too.");
  if (const std::optional<int> code = parser.ParseMain(argc, argv)) return *code;
  flags.kernels = absl::StrSplit(kernels, ',', absl::SkipEmpty());
  absl::StatusOr<bool> passed = true;
  if (flags.kernels.empty()) passed = absl::InvalidArgumentError("--kernels: names no kernel");
  if (lines.empty()) lines = DefaultProblems();
  for (const std::string& line : lines) {
    const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
    if (problem.ok()) flags.problems.push_back(*problem);
    if (!problem.ok()) passed = problem.status();
  }
  if (passed.ok()) passed = Run(flags);
  if (passed.ok()) return *passed ? 0 : 1;
  std::fprintf(stderr, "fp32_peak_main: %s\n", passed.status().ToString().c_str());
  return absl::IsUnavailable(passed.status()) ? 3 : 2;
}

}  // namespace
}  // namespace attnlab::bench

int main(int argc, char** argv) { return attnlab::bench::Main(argc, argv); }
