// How much of the GPU's fp32 rate the kernels on CUDA cores reach. The rate is measured before and
// after them in the same run (bench/fp32_peak.h), and the smaller fraction counts.
//
//   fp32_peak [--kernels=fa1,fa2] [--at_least=0.4] [--json=FILE] [PROBLEM …]
//
// Problems are in the one-line form; without any, those of every head dim with as many (sequence,
// head) pairs as an H200 has multiprocessors, and of some with longer sequences. Each kernel is
// verified against the oracle on the problem, then timed on random inputs (bench/compare.h). FLOPs
// are those of the pairs that the mask lets through. FILE is there when all of it is measured. Exit
// status: 0; 1 where a result is wrong or a fraction below --at_least; 2 for what cannot be run; 3
// without a GPU.
#include "attention/bench/fp32_peak.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attention/attention.h"
#include "attention/bench/compare.h"
#include "attention/bench/statistics.h"
#include "attention/cuda_call.h"
#include "attention/machine.h"
#include "attention/problem.h"
#include "nlohmann/json.hpp"
#include "tools/files.h"

namespace attnlab::fa1 {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPeakRepetitions = 25;
constexpr char kUsage[] =
    "fp32_peak [--kernels=fa1,fa2] [--at_least=0.4] [--json=FILE] [PROBLEM ...]\n\n"
    "The share of the GPU's rate of fp32 multiply-adds that kernels on CUDA cores reach.";

struct Flags {
  std::vector<std::string> kernels = {"fa1"};
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

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  std::vector<std::string> lines;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::printf("%s\n", kUsage);
      std::exit(0);
    } else if (absl::ConsumePrefix(&argument, "--kernels=")) {
      flags.kernels = absl::StrSplit(argument, ',', absl::SkipEmpty());
      if (flags.kernels.empty()) return absl::InvalidArgumentError("--kernels: names no kernel");
    } else if (absl::ConsumePrefix(&argument, "--json=")) {
      flags.json = std::string(argument);
      if (flags.json.empty()) return absl::InvalidArgumentError("--json: names no file");
    } else if (absl::ConsumePrefix(&argument, "--at_least=")) {
      if (!absl::SimpleAtod(argument, &flags.at_least)) {
        return absl::InvalidArgumentError("--at_least: not a number");
      }
    } else if (!argument.empty() && argument[0] == '-') {
      return absl::InvalidArgumentError(
          std::string(argument) +
          " is not one of --kernels=NAMES, --at_least=X, --json=FILE, --help or a problem");
    } else {
      lines.emplace_back(argument);
    }
  }
  if (lines.empty()) lines = DefaultProblems();
  for (const std::string& line : lines) {
    const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
    if (!problem.ok()) return problem.status();
    flags.problems.push_back(*problem);
  }
  return flags;
}

// The median of what the GPU reaches now, TFLOP/s.
absl::StatusOr<double> Peak() {
  std::vector<double> tflops;
  absl::Status s =
      cuda_backend::ToStatus(bench::MeasureFp32Peak(kPeakRepetitions, &tflops), "MeasureFp32Peak");
  if (!s.ok()) return s;
  return bench::Quantile(tflops, 0.5);
}

absl::StatusOr<std::vector<bench::Row>> Time(const AttentionProblem& problem, const Flags& flags) {
  std::vector<Plan> plans;
  for (const std::string& kernel : flags.kernels) {
    const absl::StatusOr<Plan> plan = MakePlan(problem, Device::Cuda(0), kernel);
    if (!plan.ok()) return plan.status();
    plans.push_back(*plan);
  }
  return bench::Compare(plans, {});
}

absl::StatusOr<bool> Run(const Flags& flags) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  if (!gpu.ok()) return gpu.status();
  const cuda_backend::ScopedDevice current(0);
  if (!current.status().ok()) return current.status();

  std::optional<AtomicFile> file;  // made before anything takes its time
  if (!flags.json.empty()) {
    absl::StatusOr<AtomicFile> created = AtomicFile::Create(ResolvePath(flags.json));
    if (!created.ok()) return created.status();
    file.emplace(*std::move(created));
  }

  bool passed = true;
  Json rows = Json::array();
  std::printf(
      "%s\n\n| problem | kernel | ms | TFLOP/s | peak | fraction |\n|---|---|---|---|---|---|\n",
      gpu->name.c_str());
  for (const AttentionProblem& problem : flags.problems) {
    const absl::StatusOr<double> before = Peak();
    if (!before.ok()) return before.status();
    const absl::StatusOr<std::vector<bench::Row>> timed = Time(problem, flags);
    if (!timed.ok()) return timed.status();
    const absl::StatusOr<double> after = Peak();
    if (!after.ok()) return after.status();
    const double peak = std::max(*before, *after);
    for (const bench::Row& row : *timed) {
      if (!row.status.ok()) return row.status;
      const double fraction = row.TflopPerSecond() / peak;
      passed = passed && row.verified && fraction >= flags.at_least;
      const std::string line = row.plan.problem.ToString();
      const std::string& kernel = row.plan.kernel->traits().name;
      std::printf("| %s | %s | %.3f | %.2f | %.2f | %.3f |%s\n", line.c_str(), kernel.c_str(),
                  row.median * 1e3, row.TflopPerSecond(), peak, fraction,
                  row.verified ? "" : " WRONG");
      if (!row.verified) std::fprintf(stderr, "%s\n", row.verification.message.c_str());
      rows.push_back({{"problem", line},
                      {"kernel", kernel},
                      {"median_ms", row.median * 1e3},
                      {"p10_ms", row.p10 * 1e3},
                      {"p90_ms", row.p90 * 1e3},
                      {"repetitions", row.repetitions},
                      {"tflops", row.TflopPerSecond()},
                      {"peak_before_tflops", *before},
                      {"peak_after_tflops", *after},
                      {"fraction", fraction},
                      {"correct", row.verified}});
    }
  }
  if (!file.has_value()) return passed;
  const char* commit = std::getenv("ATTNLAB_COMMIT");
  const Json json = {{"gpu", gpu->name},
                     {"multiprocessors", gpu->multiprocessors},
                     {"commit", commit == nullptr ? "" : commit},
                     {"rows", rows}};
  const std::string text = json.dump(2) + "\n";
  if (absl::Status s = file->Append(text.data(), static_cast<int64_t>(text.size())); !s.ok()) {
    return s;
  }
  if (absl::Status s = file->Commit(); !s.ok()) return s;
  return passed;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<Flags> flags = ParseFlags(argc, argv);
  const absl::StatusOr<bool> passed =
      flags.ok() ? Run(*flags) : absl::StatusOr<bool>(flags.status());
  if (passed.ok()) return *passed ? 0 : 1;
  std::fprintf(stderr, "fp32_peak: %s\n", passed.status().ToString().c_str());
  return absl::IsUnavailable(passed.status()) ? 3 : 2;
}

}  // namespace
}  // namespace attnlab::fa1

int main(int argc, char** argv) { return attnlab::fa1::Main(argc, argv); }
