// attnlab bench: verifies kernels, then times them against each other.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/bench/compare.h"
#include "tools/arguments.h"
#include "tools/command/bench_report.h"
#include "tools/command/command.h"
#include "tools/command/json.h"
#include "tools/command/selection.h"
#include "tools/table.h"
#include "tools/terminal.h"

namespace attnlab::command {
namespace {

// What is timed when nobody says: the longest of these that the slowest kernel does in less than
// kPatience a call.
constexpr int64_t kDefaultLengths[] = {4096, 2048, 1024, 512, 256};
constexpr double kPatience = 0.4;
// A kernel that is there for checking and would take longer than this a call is timed only when
// asked for by name.
constexpr double kCheckingPatience = 2;

struct Flags {
  ProblemFlags problem;
  std::string kernel = "all", device = "auto";
  std::vector<std::string> configs;
  double seconds = 0.5;
  int64_t repetitions = 5;
  int64_t input_mib = 0;
  BenchReport report;
  bool json = false, csv = false;
};

ArgumentParser MakeParser(Flags* f) {
  ArgumentParser parser(
      "attnlab bench",
      "Verifies kernels against the oracle, then times them against each other. Without a problem "
      "it takes one\nthat this machine does in seconds.");
  parser.AddGroup("What");
  AddProblemFlags(&parser, &f->problem);
  parser.AddString("kernel", "NAMES", &f->kernel, "all (the default), or names as in a,b.");
  parser.AddString("device", "D", &f->device,
                   "auto (the first GPU if a kernel for it does the problem, else the CPU), cpu, "
                   "cuda:N.");
  parser.AddStrings("config", "LINE", &f->configs,
                    "Launch configuration, key=value,…. Repeatable: each is a row.");
  parser.AddString("baseline", "NAME", &f->report.baseline,
                   "The kernel that speed-ups are against; by default that of the first row.");
  parser.AddGroup("How");
  parser.AddNumber("seconds", "X", &f->seconds, 0.001, 3600,
                   "Timed calls of a kernel on a problem take about this long. 0.5.");
  parser.AddInteger("repetitions", "N", &f->repetitions, 1, 1000000,
                    "At least so many repetitions, whatever they take. 5.");
  parser.AddInteger("input_mib", "N", &f->input_mib, 1, int64_t{1} << 30,
                    "At most so much memory for sets of inputs; by default a quarter of what the "
                    "device has.");
  parser.AddInteger("seed", "N", &f->report.seed, 0, INT64_MAX,
                    "The same seed, the same inputs. 0.");
  parser.AddBool("lse", &f->report.lse, "Have kernels write the log-sum-exp, too.");
  parser.AddBool("verify", &f->report.verify, "Verify before timing: true by default.");
  parser.AddGroup("Results");
  parser.AddString("commit", "ID", &f->report.commit,
                   "Goes into every JSON row; by default $ATTNLAB_COMMIT.");
  parser.AddBool("json", &f->json, "Print JSON.");
  parser.AddBool("csv", &f->csv, "Print CSV.");
  parser.AddSection("The one-line form of a problem", kProblemHelp);
  parser.AddSection(
      "Columns",
      "median     of a call, over the repetitions; a repetition is the mean of a few calls\n"
      "p10-p90    within which 80 % of the repetitions lie\n"
      "TFLOP/s    the two matrix products over what the mask lets through, over the median\n"
      "GB/s       the bytes that any kernel must move (Q, K, V once, O once), over the median\n"
      "moved GB/s the bytes that this kernel moves by its own model, over the median\n"
      "error      the largest error of O against the oracle, and the bound it must stay within");
  parser.AddSection("Examples",
                    "attnlab bench\n"
                    "attnlab bench --problem=hq=8,sq=512..4096,d=64/128,dtype=fp32,mask=causal\n"
                    "attnlab bench --preset=gpt2 --kernel=cpu --json > results.json\n"
                    "attnlab bench --preset='llama3-8b-decode-4k,b=1..8' --baseline=reference");
  parser.AddSection("Exit codes", kExitCodesHelp);
  return parser;
}

struct Results {
  std::vector<bench::Row> rows;
  std::vector<std::string> notes;  // of what was left out, and why
  bool impossible = false;  // whether something was left out that the flags are not to blame for
};

// Plans of one problem: every kernel and configuration that does it on its device.
absl::StatusOr<std::vector<Plan>> PlansOf(const AttentionProblem& problem, const Flags& f,
                                          const std::vector<const Kernel*>& kernels,
                                          const std::vector<LaunchConfig>& configs,
                                          Results* results) {
  const absl::StatusOr<DeviceInfo> device = DeviceOf(f.device, problem, kernels, configs.front());
  if (!device.ok()) return device.status();
  std::vector<Plan> plans;
  for (const Kernel* kernel : kernels) {
    if (kernel->traits().device != device->device.kind && f.kernel == "all") continue;
    for (const LaunchConfig& config : configs) {
      absl::StatusOr<Plan> plan = PlanFor(*kernel, problem, *device, config);
      if (plan.ok()) {
        plans.push_back(*std::move(plan));
      } else {
        // Begins with the kernel's name.
        results->notes.push_back(
            absl::StrCat(plan.status().message(), " (", problem.ToString(), ")"));
        if (!absl::IsInvalidArgument(plan.status())) results->impossible = true;
      }
    }
  }
  return plans;
}

// Leaves out what is there for checking alone and would take minutes, unless asked for by name.
absl::Status LeaveOutSlow(const Flags& f, std::vector<Plan>* plans,
                          std::vector<std::string>* notes) {
  if (f.kernel != "all") return absl::OkStatus();
  const bool others = std::any_of(plans->begin(), plans->end(), [](const Plan& plan) {
    return plan.kernel->traits().preference > 0;
  });
  if (!others) return absl::OkStatus();
  for (auto it = plans->begin(); it != plans->end();) {
    const KernelTraits& traits = it->kernel->traits();
    if (traits.preference == 0 && traits.name != f.report.baseline) {
      const absl::StatusOr<double> seconds = bench::EstimateSeconds(*it);
      if (!seconds.ok()) return seconds.status();
      if (*seconds > kCheckingPatience) {
        notes->push_back(absl::StrCat(
            traits.name, ": left out of ", it->problem.ToString(), ": about ", Seconds(*seconds),
            " a call; --kernel=", traits.name, ",… times it all the same"));
        it = plans->erase(it);
        continue;
      }
    }
    ++it;
  }
  return absl::OkStatus();
}

// The longest default problem for which this machine needs no patience.
absl::StatusOr<AttentionProblem> DefaultProblem(const Flags& f,
                                                const std::vector<const Kernel*>& kernels,
                                                const std::vector<LaunchConfig>& configs) {
  // Of several dtypes the first decides.
  const std::string name = f.problem.dtype.substr(0, f.problem.dtype.find('/'));
  absl::StatusOr<DType> dtype = ParseDType(name.empty() ? "fp32" : name);
  if (!dtype.ok()) return absl::InvalidArgumentError(absl::StrCat("--", dtype.status().message()));
  AttentionProblem problem;
  problem.hq = problem.hkv = 8;
  problem.dtype = *dtype;
  problem.mask = Mask::Causal();
  for (int64_t length : kDefaultLengths) {
    problem.sq = problem.skv = length;
    if (length == kDefaultLengths[std::size(kDefaultLengths) - 1]) break;
    Results unused;
    absl::StatusOr<std::vector<Plan>> plans = PlansOf(problem, f, kernels, configs, &unused);
    if (!plans.ok()) return plans.status();
    double slowest = 0;
    for (const Plan& plan : *plans) {
      const absl::StatusOr<double> seconds = bench::EstimateSeconds(plan);
      if (!seconds.ok()) return seconds.status();
      slowest = std::max(slowest, *seconds);
    }
    if (slowest < kPatience) break;
  }
  return problem;
}

absl::Status BenchAll(const Flags& f, const Streams& streams, Results* results) {
  const absl::StatusOr<std::vector<const Kernel*>> kernels = KernelsOf(f.kernel);
  if (!kernels.ok()) return kernels.status();
  const absl::StatusOr<std::vector<LaunchConfig>> configs = ConfigsOf(f.configs);
  if (!configs.ok()) return configs.status();
  if (!f.report.baseline.empty() &&
      std::none_of(kernels->begin(), kernels->end(),
                   [&f](const Kernel* k) { return k->traits().name == f.report.baseline; })) {
    return absl::InvalidArgumentError(absl::StrCat("--baseline: \"", f.report.baseline,
                                                   "\" is not among the kernels that are timed"));
  }
  absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f.problem);
  if (!problems.ok()) return problems.status();
  if (problems->empty()) {
    absl::StatusOr<AttentionProblem> problem = DefaultProblem(f, *kernels, *configs);
    if (!problem.ok()) return problem.status();
    ProblemFlags one = f.problem;
    one.problems = {problem->ToString()};
    problems = ProblemsOf(one);
    if (!problems.ok()) return problems.status();
  }
  bench::Options options;
  options.seed = static_cast<uint64_t>(f.report.seed);
  options.with_lse = f.report.lse;
  options.verify = f.report.verify;
  options.seconds = f.seconds;
  options.min_repetitions = f.repetitions;
  options.max_repetitions = std::max<int64_t>(f.repetitions, 200);
  options.memory_bytes = f.input_mib << 20;

  Progress progress(stderr, static_cast<int64_t>(problems->size()));
  for (size_t i = 0; i < problems->size(); ++i) {
    const AttentionProblem& problem = (*problems)[i];
    options.progress = [&](absl::string_view what) {
      progress.Show(static_cast<int64_t>(i), absl::StrCat(what, ": ", problem.ToString()));
    };
    options.progress("planning");
    absl::StatusOr<std::vector<Plan>> plans = PlansOf(problem, f, *kernels, *configs, results);
    if (!plans.ok()) return plans.status();
    if (absl::Status s = LeaveOutSlow(f, &*plans, &results->notes); !s.ok()) return s;
    absl::StatusOr<std::vector<bench::Row>> rows = bench::Compare(*plans, options);
    if (!rows.ok()) {
      // The rows so far are worth more than their being complete.
      if (results->rows.empty()) return rows.status();
      results->notes.push_back(absl::StrCat(problem.ToString(), ": ", rows.status().message()));
      if (ExitCodeOf(rows.status()) == kFailed) return rows.status();
      continue;
    }
    for (bench::Row& row : *rows) results->rows.push_back(std::move(row));
  }
  progress.Clear();
  for (const std::string& note : results->notes) {
    streams.err << "attnlab bench: " << note << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

int Bench(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "bench", arguments, streams, &code)) return code;
  if (flags.json && flags.csv) {
    return Fail(streams, "bench",
                absl::InvalidArgumentError("--json and --csv exclude each other"));
  }
  Results results;
  const absl::Status s = BenchAll(flags, streams, &results);
  if (!s.ok() && results.rows.empty()) return Fail(streams, "bench", s);
  if (results.rows.empty() && !results.notes.empty() && !results.impossible) {
    return Fail(streams, "bench", absl::InvalidArgumentError("no kernel takes these flags"));
  }
  if (results.rows.empty()) {
    return Fail(streams, "bench",
                absl::UnimplementedError("no kernel here does any of these problems"));
  }
  if (const char* commit = std::getenv("ATTNLAB_COMMIT");
      flags.report.commit.empty() && commit != nullptr) {
    flags.report.commit = commit;
  }
  if (flags.json || flags.csv) {
    const std::vector<Json> rows = BenchJson(results.rows, flags.report);
    streams.out << (flags.csv ? Csv(rows) : Dump({{"command", "bench"}, {"rows", rows}}));
  } else {
    PrintBench(results.rows, flags.report, streams);
  }
  if (!s.ok()) return Fail(streams, "bench", s);
  const bool wrong =
      std::any_of(results.rows.begin(), results.rows.end(), [&flags](const bench::Row& r) {
        return !r.status.ok() || (flags.report.verify && !r.verified);
      });
  return wrong ? kFailed : kOk;
}

}  // namespace attnlab::command
