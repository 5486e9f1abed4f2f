// attnlab bench: verifies kernels, then times them against each other.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/bench/compare.h"
#include "attention/core/dtype.h"
#include "attention/oracle/verify.h"
#include "tools/command/bench_plans.h"
#include "tools/command/bench_ranks.h"
#include "tools/command/bench_report.h"
#include "tools/command/command.h"
#include "tools/command/selection.h"
#include "tools/command/time_left.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

struct Flags {
  ProblemFlags problem;
  std::string kernel = "all", device = "auto";
  std::vector<std::string> configs;
  double seconds = 0.5, timeout = 10, max_noise = 2;
  int64_t repetitions = 5;
  int64_t input_mib = 0;
  BenchReport report;
  RanksFlags ranks;
  Formats formats;
};

ArgumentParser MakeParser(Flags* f) {
  ArgumentParser parser(
      "attnlab bench",
      "Checks kernels against the oracle, then times them. Without a problem it takes one that "
      "lasts seconds.");
  parser.AddGroup("What");
  AddProblemFlags(&parser, &f->problem);
  parser.AddString("kernel", "NAMES", &f->kernel,
                   "all, or names, as in a,b; all,NAME times a slow one, too [all]");
  parser.AddString("device", "D", &f->device,
                   "auto (each kernel where it runs), cpu, or cuda:N [auto]");
  parser.AddStrings("config", "LINE", &f->configs,
                    "key=value,… with lists and ranges, a row each, or default; repeatable");
  parser.AddString("baseline", "NAME", &f->report.baseline,
                   "kernel that speed-ups are against [that of the first row]");
  parser.AddGroup("On several GPUs at once");
  parser.AddInteger("gpus", "N", &f->ranks.gpus, 1, 1024,
                    "divide each problem among GPUs 0 to N - 1, or with --device=cpu among N "
                    "threads");
  parser.AddStrings("parallel", "WAY", &f->ranks.ways,
                    "how: zigzag, ring, alltoall, splitkv or heads, repeatable [all]");
  parser.AddGroup("How");
  parser.AddNumber("seconds", "X", &f->seconds, 0.001, 3600,
                   "minimum measuring time per row, seconds [0.5]");
  parser.AddNumber("max_noise", "X", &f->max_noise, 0.01, 100,
                   "measure until the noise is at most X percent [2]");
  parser.AddNumber("timeout", "X", &f->timeout, 0.001, 1e6,
                   "maximum time of the timed calls of a row, seconds [10]");
  parser.AddInteger("repetitions", "N", &f->repetitions, 1, 1000000,
                    "minimum repetitions per row [5]");
  parser.AddInteger("input_mib", "N", &f->input_mib, 1, int64_t{1} << 30,
                    "maximum memory for sets of inputs, MiB [a quarter of the device's]");
  parser.AddInteger("seed", "N", &f->report.seed, 0, INT64_MAX, "seed of the inputs [0]");
  parser.AddBool("lse", &f->report.lse, "kernels write the log-sum-exp, too [false]", kLseHint);
  parser.AddBool("verify", &f->report.verify,
                 "check each kernel against the oracle before timing it [true]");
  parser.AddGroup("Results");
  parser.AddString("commit", "ID", &f->report.commit, "commit that results name [$ATTNLAB_COMMIT]");
  AddJsonFlag(&parser, &f->formats);
  AddCsvFlag(&parser, &f->formats);
  parser.AddSection("The one-line form of a problem", kProblemHelp);
  parser.AddSection(
      "Columns",
      "device     where several are compared; inputs are the same numbers on each\n"
      "median     of a call, over the repetitions; a repetition is the mean of a few calls.\n"
      "           On a GPU between two events in the stream, on the CPU wall-clock time\n"
      "noise      how far off the median may be, by its 99.7 % confidence interval; on a busy "
      "machine\n"
      "           also by the time that threads waited for a processor\n"
      "p10-p90    within which 80 % of the repetitions lie\n"
      "TFLOP/s    the two matrix products over what the mask lets through, over the median;\n"
      "           GFLOP/s if the fastest row is below 0.1 TFLOP/s, MFLOP/s if below 0.1 GFLOP/s\n"
      "GB/s       the bytes that any kernel must move (Q, K, V once, O once), over the median\n"
      "moved GB/s the bytes that this kernel moves by its own model, over the median; models are "
      "of\n"
      "           equal lengths\n"
      "error      the largest error of O against the oracle, and the bound it must stay within\n"
      "With --gpus:\n"
      "speedup    over one GPU in the same run\n"
      "predicted  by the model of attnlab simulate, with the rate that one GPU has here\n"
      "computing, waiting  of each step of a ring, on the rank that takes longest");
  parser.AddSection("Examples",
                    "attnlab bench\n"
                    "attnlab bench --problem=hq=8,sq=512..4096,d=64/128,dtype=fp32,mask=causal\n"
                    "attnlab bench --preset=gpt2 --kernel=cpu --json > results.json\n"
                    "attnlab bench --preset=gpt2 --kernel=cpu --config=tile_kv=32..256\n"
                    "attnlab bench --preset='llama3-8b-decode-4k,b=1..8' --baseline=reference\n"
                    "attnlab bench --gpus=2 --problem=hq=16,sq=32768,d=128,dtype=bf16,mask=causal");
  return parser;
}

struct Results {
  std::vector<bench::Row> rows;
  LeftOut left_out{"attnlab bench"};
  bool interrupted = false;
};

absl::StatusOr<BenchSelection> SelectionOf(const Flags& f) {
  BenchSelection selection;
  selection.names = f.kernel;
  selection.device = f.device;
  selection.baseline = f.report.baseline;
  selection.seed = static_cast<uint64_t>(f.report.seed);
  absl::StatusOr<std::vector<const Kernel*>> kernels = KernelsOf(f.kernel);
  if (!kernels.ok()) return kernels.status();
  selection.kernels = *std::move(kernels);
  absl::StatusOr<std::vector<LaunchConfig>> configs = ConfigsOf(f.configs, selection.kernels);
  if (!configs.ok()) return configs.status();
  selection.configs = *std::move(configs);
  const auto is_baseline = [&f](const Kernel* k) { return k->traits().name == f.report.baseline; };
  if (!f.report.baseline.empty() &&
      std::none_of(selection.kernels.begin(), selection.kernels.end(), is_baseline)) {
    return absl::InvalidArgumentError(absl::StrCat("--baseline: \"", f.report.baseline,
                                                   "\" is not among the kernels that are timed"));
  }
  return selection;
}

absl::StatusOr<std::vector<AttentionProblem>> ProblemsOrDefault(const Flags& f,
                                                                const BenchSelection& selection) {
  absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f.problem);
  if (!problems.ok() || !problems->empty()) return problems;
  // The first of several dtypes decides.
  const std::string name = f.problem.dtype.substr(0, f.problem.dtype.find('/'));
  const absl::StatusOr<DType> dtype = ParseDType(name.empty() ? "fp32" : name);
  if (!dtype.ok()) return absl::InvalidArgumentError(absl::StrCat("--", dtype.status().message()));
  const absl::StatusOr<AttentionProblem> problem = DefaultProblem(*dtype, selection);
  if (!problem.ok()) return problem.status();
  ProblemFlags one = f.problem;
  one.problems = {problem->ToString()};
  return ProblemsOf(one);
}

// Keeps rows that were timed or failed. Rows without enough memory are left out with the reason;
// rows that Ctrl-C cut off are dropped.
void Keep(std::vector<bench::Row> rows, Results* results) {
  for (bench::Row& row : rows) {
    if (absl::IsResourceExhausted(row.status)) {
      results->left_out.Add(row.status, row.plan.problem.ToString());
    } else if (!absl::IsCancelled(row.status)) {
      results->rows.push_back(std::move(row));
    }
  }
}

// Seconds that Compare() takes for the plans of one problem, unless noise makes it take longer.
double ExpectedSeconds(const std::vector<Plan>& plans, const bench::Options& options,
                       CallTimes* times) {
  double seconds = 0;
  for (const Plan& plan : plans) {
    const double call = times->Seconds(plan);
    const double repetitions = static_cast<double>(options.min_repetitions);
    seconds += std::max(options.seconds, repetitions * call) + 2 * call;  // two to warm up
    if (options.verify) seconds += call;
  }
  if (options.verify && !plans.empty())
    seconds += OracleSeconds(plans[0].problem, oracle::VerifyOptions().oracle_flops);
  return seconds;
}

absl::Status BenchAll(const Flags& f, Results* results) {
  const absl::StatusOr<BenchSelection> selection = SelectionOf(f);
  if (!selection.ok()) return selection.status();
  const absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOrDefault(f, *selection);
  if (!problems.ok()) return problems.status();
  bench::Options options;
  options.seed = selection->seed;
  options.with_lse = f.report.lse;
  options.verify = f.report.verify;
  options.seconds = f.seconds;
  options.timeout = f.timeout;
  options.max_noise = f.report.max_noise;
  options.min_repetitions = f.repetitions;
  options.max_repetitions = std::max<int64_t>(f.repetitions, 200);
  options.memory_bytes = f.input_mib << 20;
  options.stopped = Interrupt::Pressed;

  Progress progress(stderr, static_cast<int64_t>(problems->size()));
  progress.Show(0, "planning");
  std::vector<std::vector<Plan>> plans;  // one entry per problem
  for (const AttentionProblem& problem : *problems) {
    absl::StatusOr<std::vector<Plan>> some = PlansOf(problem, *selection, &results->left_out);
    if (!some.ok()) return some.status();
    plans.push_back(*std::move(some));
  }
  std::vector<Plan> all;
  for (const std::vector<Plan>& some : plans) all.insert(all.end(), some.begin(), some.end());
  CallTimes times(all);
  std::vector<double> expected;  // seconds, one entry per problem
  for (std::vector<Plan>& some : plans) {
    LeaveOutSlow(*selection, &times, &some, &results->left_out);
    expected.push_back(ExpectedSeconds(some, options, &times));
  }
  TimeLeft left(std::move(expected), f.timeout * static_cast<double>(selection->kernels.size() *
                                                                     selection->configs.size()));
  for (size_t i = 0; i < plans.size() && !Interrupt::Pressed(); ++i) {
    options.progress = [&](absl::string_view what) {
      progress.Show(static_cast<int64_t>(i), absl::StrCat(what, ": ", (*problems)[i].ToString()),
                    left.Seconds(i));
    };
    absl::StatusOr<std::vector<bench::Row>> rows = bench::Compare(plans[i], options);
    if (!rows.ok()) return rows.status();
    Keep(*std::move(rows), results);
  }
  results->interrupted = Interrupt::Pressed();
  return absl::OkStatus();
}

absl::Status WriteRows(const std::string& commit, std::vector<Json>* rows, ResultFiles* files,
                       const Streams& streams) {
  const Json attnlab = AttnlabJson(commit);
  for (Json& row : *rows) row["attnlab"] = attnlab;
  return files->Write({{"command", "bench"}, {"attnlab", attnlab}, {"rows", *rows}}, *rows,
                      streams);
}

// Flags that only the one or the other reads.
absl::Status CheckFlags(const Flags& f, const ArgumentParser& parser) {
  if (f.ranks.gpus == 0) {
    if (!parser.Given("parallel")) return absl::OkStatus();
    return absl::InvalidArgumentError("--parallel goes with --gpus alone");
  }
  for (const char* flag :
       {"config", "baseline", "max_noise", "timeout", "repetitions", "input_mib", "lse"}) {
    if (!parser.Given(flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", flag, " does not go with --gpus"));
  }
  return absl::OkStatus();
}

// `wrong`: whether an output was; `some`: whether there are rows.
absl::Status BenchOnRanks(Flags* f, const Streams& streams, ResultFiles* files, bool* wrong,
                          bool* some) {
  f->ranks.on_cpu = f->device == "cpu";
  if (!f->ranks.on_cpu && f->device != "auto") {
    return absl::InvalidArgumentError("--device: with --gpus it is auto or cpu");
  }
  if (f->kernel != "all") f->ranks.kernel = f->kernel;
  f->ranks.seconds = f->seconds;
  f->ranks.seed = static_cast<uint64_t>(f->report.seed);
  f->ranks.verify = f->report.verify;
  const absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f->problem);
  if (!problems.ok()) return problems.status();
  if (problems->empty()) return absl::InvalidArgumentError("--problem: --gpus needs one");
  std::vector<Json> rows;
  std::vector<std::string> left_out;
  absl::Status s = BenchRanks(*problems, f->ranks, &rows, &left_out);
  for (const std::string& line : left_out) streams.err << "attnlab bench: " << line << "\n";
  *some = !rows.empty();
  if (rows.empty()) return s;
  for (const Json& row : rows) *wrong |= row.value("verdict", "ok") != "ok";
  s.Update(WriteRows(f->report.commit, &rows, files, streams));
  if (f->formats.Tables()) PrintRanks(rows, streams);
  return s;
}

}  // namespace

int Bench(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "bench", arguments, streams, &code)) return code;
  if (absl::Status s = CheckFlags(flags, parser); !s.ok()) return Fail(streams, "bench", s);
  flags.report.max_noise = flags.max_noise / 100;
  if (flags.report.commit.empty()) flags.report.commit = Commit();
  Results results;
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(flags.formats);
  if (!files.ok()) return Fail(streams, "bench", files.status());
  absl::Status s;
  if (flags.ranks.gpus > 0) {
    const StopOnCtrlC stop("bench");
    bool wrong = false, some = false;
    s = BenchOnRanks(&flags, streams, &*files, &wrong, &some);
    if (Interrupt::Pressed() && (s.ok() || absl::IsCancelled(s))) {
      return Interrupted(streams, "bench", !some);
    }
    return !s.ok() ? Fail(streams, "bench", s) : wrong ? kFailed : kOk;
  }
  {
    const StopOnCtrlC stop("bench");
    s = BenchAll(flags, &results);
  }
  results.left_out.Print(streams.err);
  const auto is_baseline = [&flags](const bench::Row& row) {
    return row.status.ok() && row.plan.kernel->traits().name == flags.report.baseline;
  };
  if (s.ok() && !flags.report.baseline.empty() && !results.rows.empty() &&
      std::none_of(results.rows.begin(), results.rows.end(), is_baseline)) {
    streams.err << "attnlab bench: --baseline: " << flags.report.baseline
                << " was not timed, so there are no speed-ups\n";
  }
  if (s.ok() && results.rows.empty() && !results.interrupted) {
    s = results.left_out.blame().NothingDone();
  }
  if (!results.rows.empty()) {
    std::vector<Json> rows = BenchJson(results.rows, flags.report);
    s.Update(WriteRows(flags.report.commit, &rows, &*files, streams));
    if (flags.formats.Tables()) PrintBench(results.rows, flags.report, streams);
  }
  if (!s.ok()) return Fail(streams, "bench", s);
  if (results.interrupted) return Interrupted(streams, "bench", results.rows.empty());
  const bool wrong =
      std::any_of(results.rows.begin(), results.rows.end(), [&flags](const bench::Row& r) {
        return !r.status.ok() || (flags.report.verify && !r.verified);
      });
  return wrong ? kFailed : kOk;
}

}  // namespace attnlab::command
