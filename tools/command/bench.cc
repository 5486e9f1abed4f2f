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
#include "tools/command/command.h"
#include "tools/command/json.h"
#include "tools/command/selection.h"
#include "tools/sweep.h"
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
  std::string kernel = "all", device = "auto", baseline;
  std::vector<std::string> configs;
  int64_t seed = 0;
  double seconds = 0.5;
  int64_t repetitions = 5;
  int64_t input_mib = 0;
  bool lse = false, verify = true;
  std::string commit;
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
  parser.AddString("baseline", "NAME", &f->baseline,
                   "The kernel that speed-ups are against; by default that of the first row.");
  parser.AddGroup("How");
  parser.AddNumber("seconds", "X", &f->seconds, 0.001, 3600,
                   "Timed calls of a kernel on a problem take about this long. 0.5.");
  parser.AddInteger("repetitions", "N", &f->repetitions, 1, 1000000,
                    "At least so many repetitions, whatever they take. 5.");
  parser.AddInteger("input_mib", "N", &f->input_mib, 1, int64_t{1} << 30,
                    "At most so much memory for sets of inputs; by default a quarter of what the "
                    "device has.");
  parser.AddInteger("seed", "N", &f->seed, 0, INT64_MAX, "The same seed, the same inputs. 0.");
  parser.AddBool("lse", &f->lse, "Have kernels write the log-sum-exp, too.");
  parser.AddBool("verify", &f->verify, "Verify before timing: true by default.");
  parser.AddGroup("Results");
  parser.AddString("commit", "ID", &f->commit,
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
};

// Plans of one problem: every kernel and configuration that does it on its device.
absl::StatusOr<std::vector<Plan>> PlansOf(const AttentionProblem& problem, const Flags& f,
                                          const std::vector<const Kernel*>& kernels,
                                          const std::vector<LaunchConfig>& configs,
                                          std::vector<std::string>* notes) {
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
        notes->push_back(absl::StrCat(plan.status().message(), " (", problem.ToString(), ")"));
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
    if (traits.preference == 0 && traits.name != f.baseline) {
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
  absl::StatusOr<DType> dtype = ParseDType(f.problem.dtype.empty() ? "fp32" : f.problem.dtype);
  if (!dtype.ok()) return absl::InvalidArgumentError(absl::StrCat("--", dtype.status().message()));
  AttentionProblem problem;
  problem.hq = problem.hkv = 8;
  problem.dtype = *dtype;
  problem.mask = Mask::Causal();
  for (int64_t length : kDefaultLengths) {
    problem.sq = problem.skv = length;
    if (length == kDefaultLengths[std::size(kDefaultLengths) - 1]) break;
    std::vector<std::string> notes;
    absl::StatusOr<std::vector<Plan>> plans = PlansOf(problem, f, kernels, configs, &notes);
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

// The row that the speed-up of `row` is against: the first of its problem, or of the baseline.
const bench::Row* BaselineOf(const bench::Row& row, const std::vector<bench::Row>& rows,
                             const std::string& baseline) {
  for (const bench::Row& other : rows) {
    if (other.status.ok() && other.plan.problem == row.plan.problem &&
        (baseline.empty() || other.plan.kernel->traits().name == baseline)) {
      return &other;
    }
  }
  return nullptr;
}

Json RowJson(const bench::Row& row, const bench::Row* baseline, const Flags& f,
             const std::string& commit, const std::string& date) {
  Json json = {{"problem", row.plan.problem.ToString()},
               {"kernel", row.plan.kernel->traits().name},
               {"config", row.plan.config.ToString()},
               {"machine", MachineJson(row.plan.device)},
               {"median_seconds", row.median},
               {"p10_seconds", row.p10},
               {"p90_seconds", row.p90},
               {"repetitions", row.repetitions},
               {"calls_per_repetition", row.calls_per_repetition},
               {"tflop_per_second", row.TflopPerSecond()},
               {"gb_per_second", row.GbPerSecond()},
               {"moved_gb_per_second", row.MovedGbPerSecond()},
               {"flops", row.compulsory.flops},
               {"compulsory_bytes", row.compulsory.Bytes()},
               {"expected_bytes", row.expected.Bytes()},
               {"baseline", nullptr},
               {"speed_up", nullptr},
               {"verdict", !f.verify      ? "not checked"
                           : row.verified ? "ok"
                                          : "wrong"},
               {"error", nullptr},
               {"bound", nullptr},
               {"input_sets", row.input_sets},
               {"input_set_bytes", row.set_bytes},
               {"past_last_level_cache", row.past_cache},
               {"seed", f.seed},
               {"lse", f.lse},
               {"commit", nullptr},
               {"date", date}};
  if (!row.status.ok()) {
    json["verdict"] = "failed";
    json["message"] = std::string(row.status.message());
    for (const char* key : {"median_seconds", "p10_seconds", "p90_seconds", "tflop_per_second",
                            "gb_per_second", "moved_gb_per_second"}) {
      json[key] = nullptr;
    }
    baseline = nullptr;
  }
  if (baseline != nullptr) {
    json["baseline"] = baseline->plan.kernel->traits().name;
    json["speed_up"] = baseline->median / row.median;
  }
  if (f.verify && row.status.ok()) {
    json["error"] = row.verification.o.max_error;
    json["bound"] = row.verification.o.bound;
  }
  if (!commit.empty()) json["commit"] = commit;
  return json;
}

// Text of `value` where all rows have one; "" where they differ.
template <typename Get>
std::string Common(const std::vector<bench::Row>& rows, const Get& get) {
  for (const bench::Row& row : rows) {
    if (get(row) != get(rows.front())) return "";
  }
  return get(rows.front());
}

std::string InputsText(const bench::Row& row) {
  if (row.input_sets == 1) {
    return absl::StrCat("one set of inputs of ", Bytes(row.set_bytes),
                        row.past_cache ? "" : ", which caches may hold");
  }
  return absl::StrCat(row.input_sets, " sets of inputs of ", Bytes(row.set_bytes), " in turn, ",
                      row.past_cache ? "more than the last-level cache holds"
                                     : "which the last-level cache may hold");
}

void PrintTable(const Results& results, const Flags& f, const Streams& streams) {
  const std::vector<bench::Row>& rows = results.rows;
  std::vector<std::string> lines;
  for (const bench::Row& row : rows) lines.push_back(row.plan.problem.ToString());
  const CommonKeys problems = SplitCommon(lines);
  const bool one_problem =
      Common(rows, [](const bench::Row& r) { return r.plan.problem.ToString(); }) == lines.front();
  const bool configs = std::any_of(rows.begin(), rows.end(),
                                   [](const bench::Row& row) { return !row.plan.config.empty(); });
  const std::string machine = Common(rows, [](const bench::Row& r) {
    return absl::StrCat(r.plan.device.name, ", ", MachineSummary(r.plan.device));
  });
  const std::string versus = Common(rows, [&](const bench::Row& r) {
    const bench::Row* baseline = BaselineOf(r, rows, f.baseline);
    return baseline == nullptr ? std::string() : baseline->plan.kernel->traits().name;
  });

  std::vector<Table::Column> columns;
  if (!one_problem) columns.push_back({"problem", Table::kLeft});
  columns.push_back({"kernel", Table::kLeft});
  if (machine.empty()) columns.push_back({"on", Table::kLeft});
  if (configs) columns.push_back({"config", Table::kLeft});
  for (const char* title : {"median", "p10-p90", "TFLOP/s", "GB/s", "moved GB/s"}) {
    columns.push_back({title, Table::kRight});
  }
  columns.push_back({versus.empty() ? "speed-up" : absl::StrCat("vs ", versus), Table::kRight});
  columns.push_back({"error", Table::kRight});
  columns.push_back({"bound", Table::kRight});
  columns.push_back({"verdict", Table::kLeft});
  Table table(std::move(columns));
  for (size_t i = 0; i < rows.size(); ++i) {
    const bench::Row& row = rows[i];
    std::vector<Table::Cell> cells;
    if (!one_problem) cells.push_back({problems.rests[i]});
    cells.push_back({row.plan.kernel->traits().name});
    if (machine.empty()) cells.push_back({ToString(row.plan.device.device)});
    if (configs) cells.push_back({row.plan.config.ToString()});
    if (!row.status.ok()) {
      for (int k = 0; k < 8; ++k) cells.push_back({"-"});
      cells.push_back({"FAILED", Colour::kRed});
      table.AddRow(std::move(cells));
      continue;
    }
    cells.push_back({Seconds(row.median)});
    cells.push_back({SecondsRange(row.p10, row.p90)});
    cells.push_back({Digits(row.TflopPerSecond())});
    cells.push_back({Digits(row.GbPerSecond())});
    cells.push_back({Digits(row.MovedGbPerSecond())});
    const bench::Row* baseline = BaselineOf(row, rows, f.baseline);
    cells.push_back(
        {baseline == nullptr ? "-" : absl::StrCat(Digits(baseline->median / row.median), "x")});
    cells.push_back({f.verify ? ErrorNumber(row.verification.o.max_error) : "-"});
    cells.push_back({f.verify ? ErrorNumber(row.verification.o.bound) : "-"});
    cells.push_back(!f.verify      ? Table::Cell("not checked", Colour::kYellow)
                    : row.verified ? Table::Cell("ok", Colour::kGreen)
                                   : Table::Cell("WRONG", Colour::kRed));
    table.AddRow(std::move(cells));
  }
  if (!problems.common.empty()) streams.out << problems.common << "\n";
  if (!machine.empty()) streams.out << machine << "\n";
  streams.out << "\n" << table.Markdown(streams.colours);
  int64_t fewest = 0, most = 0;
  for (const bench::Row& row : rows) {
    if (!row.status.ok()) continue;
    fewest = fewest == 0 ? row.repetitions : std::min(fewest, row.repetitions);
    most = std::max(most, row.repetitions);
  }
  if (most > 0) {
    const std::string inputs = Common(rows, InputsText);
    streams.out << "\n"
                << fewest << (fewest == most ? "" : absl::StrCat(" to ", most))
                << " repetitions, kernels in random order; "
                << (inputs.empty() ? "sets of inputs in turn, see --json" : inputs) << ".\n";
  }
  for (const bench::Row& row : rows) {
    if (!row.status.ok()) {
      streams.out << "\n" << row.status.message() << "\n";
    } else if (f.verify && !row.verified) {
      streams.out << "\n" << row.verification.message;
    }
  }
}

absl::Status BenchAll(const Flags& f, const Streams& streams, Results* results) {
  const absl::StatusOr<std::vector<const Kernel*>> kernels = KernelsOf(f.kernel);
  if (!kernels.ok()) return kernels.status();
  const absl::StatusOr<std::vector<LaunchConfig>> configs = ConfigsOf(f.configs);
  if (!configs.ok()) return configs.status();
  if (!f.baseline.empty() && std::none_of(kernels->begin(), kernels->end(), [&f](const Kernel* k) {
        return k->traits().name == f.baseline;
      })) {
    return absl::InvalidArgumentError(
        absl::StrCat("--baseline: \"", f.baseline, "\" is not among the kernels that are timed"));
  }
  absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f.problem);
  if (!problems.ok()) return problems.status();
  if (problems->empty()) {
    absl::StatusOr<AttentionProblem> problem = DefaultProblem(f, *kernels, *configs);
    if (!problem.ok()) return problem.status();
    problems->push_back(*problem);
  }
  bench::Options options;
  options.seed = static_cast<uint64_t>(f.seed);
  options.with_lse = f.lse;
  options.verify = f.verify;
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
    absl::StatusOr<std::vector<Plan>> plans =
        PlansOf(problem, f, *kernels, *configs, &results->notes);
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
  if (results.rows.empty()) {
    return Fail(streams, "bench",
                absl::UnimplementedError("no kernel here does any of these problems"));
  }
  std::string commit = flags.commit;
  if (const char* from = std::getenv("ATTNLAB_COMMIT"); commit.empty() && from != nullptr) {
    commit = from;
  }
  if (flags.json || flags.csv) {
    std::vector<Json> rows;
    const std::string date = UtcNow();
    for (const bench::Row& row : results.rows) {
      rows.push_back(
          RowJson(row, BaselineOf(row, results.rows, flags.baseline), flags, commit, date));
    }
    streams.out << (flags.csv ? Csv(rows) : Dump({{"command", "bench"}, {"rows", rows}}));
  } else {
    PrintTable(results, flags, streams);
  }
  if (!s.ok()) return Fail(streams, "bench", s);
  const bool wrong = std::any_of(
      results.rows.begin(), results.rows.end(),
      [&flags](const bench::Row& r) { return !r.status.ok() || (flags.verify && !r.verified); });
  return wrong ? kFailed : kOk;
}

}  // namespace attnlab::command
