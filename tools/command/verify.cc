// attnlab verify: kernels against the oracle.
#include "attention/oracle/verify.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attention/attention.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/layout.h"
#include "tools/command/command.h"
#include "tools/command/machine.h"
#include "tools/command/selection.h"
#include "tools/command/sweep.h"
#include "tools/command/time_left.h"
#include "tools/command/verify_accuracy.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

// Every dtype and mask, grouped heads, and lengths that are not a multiple of a tile.
constexpr char kDefaultProblem[] =
    "b=2,hq=4,hkv=2,sq=129,skv=257,d=64,dtype=fp32/fp16/bf16,mask=none/causal/window:63:0";

struct Flags {
  ProblemFlags problem;
  std::string kernel = "all", device = "auto";
  std::vector<std::string> configs;
  int64_t seed = 0, reruns = 1;
  std::string layout = "bshd", values = "normal";
  std::string q_lens, kv_lens;
  double oracle_flops = 1e9;
  bool lse = true, accuracy = false;
  Formats formats;
};

ArgumentParser MakeParser(Flags* f) {
  ArgumentParser parser("attnlab verify",
                        "Checks kernels against the oracle, which computes in double: the largest "
                        "error of O and LSE,\nand its bound.");
  parser.AddGroup("What");
  AddProblemFlags(&parser, &f->problem);
  parser.AddString("kernel", "NAMES", &f->kernel, "all, or names, as in a,b [all]");
  parser.AddString("device", "D", &f->device,
                   "auto (each kernel where it runs), cpu, or cuda:N [auto]");
  parser.AddStrings("config", "LINE", &f->configs,
                    "key=value,… with lists and ranges, a row each, or default; repeatable");
  parser.AddGroup("Inputs");
  parser.AddInteger("seed", "N", &f->seed, 0, INT64_MAX, "seed of the inputs [0]");
  parser.AddString("layout", "L", &f->layout,
                   "layout of the inputs: bshd, bhsd, qkv, strided, odd [bshd]");
  parser.AddString("values", "V", &f->values,
                   "normal, uniform, outliers, large, zero_q, constant_v [normal]");
  parser.AddString("q_lens", "N,N,...", &f->q_lens,
                   "queries of each packed or padded sequence, b numbers [from the seed]");
  parser.AddString("kv_lens", "N,N,...", &f->kv_lens,
                   "keys of each packed or padded sequence, b numbers [from the seed]");
  parser.AddGroup("How");
  parser.AddBool("lse", &f->lse, "check the log-sum-exp, too [true]", kLseHint);
  parser.AddNumber("oracle_flops", "N", &f->oracle_flops, 1, 1e18,
                   "FLOPs above which the oracle takes a sample of the rows [1e9]");
  parser.AddInteger("reruns", "N", &f->reruns, 0, INT64_MAX,
                    "runs after the first one, which have to give the same bits [1]");
  parser.AddBool("accuracy", &f->accuracy,
                 "instead: how far O is from that of unrounded numbers, in 16 bits and in fp8 "
                 "with each kind of scales, over numbers of which few are large [false]");
  AddJsonFlag(&parser, &f->formats);
  AddCsvFlag(&parser, &f->formats);
  parser.AddSection("The one-line form of a problem", kProblemHelp);
  parser.AddSection("Examples",
                    "attnlab verify\n"
                    "attnlab verify --preset=gpt2 --dtype=fp32/bf16\n"
                    "attnlab verify --kernel=cpu --problem=hq=8,hkv=1,sq=1..128,d=64 --seed=7\n"
                    "attnlab verify --problem=b=3,hq=2,sq=9,d=64,lens=packed --q_lens=0,9,1\n"
                    "attnlab verify --accuracy --problem=hq=4,sq=4096,d=128");
  return parser;
}

struct Rows {
  std::vector<std::string> problems;            // of each row
  std::vector<std::vector<Table::Cell>> cells;  // of each row, after its problem
  std::vector<Json> json;
  std::string details;                     // messages of failed rows, below the table
  std::map<std::string, int64_t> reasons;  // why rows were skipped, and how many rows
  int64_t passed = 0, failed = 0, skipped = 0;
  Blame blame;  // for skipped rows

  // For each configuration: whether some kernel takes it or might, and if not, why.
  struct Taken {
    bool possible = false;
    std::string reason;
  };
  std::vector<Taken> configs;

  void Add(const AttentionProblem& problem, std::vector<Table::Cell> row, Json row_json) {
    problems.push_back(problem.ToString());
    cells.push_back(std::move(row));
    json.push_back(std::move(row_json));
  }
};

std::string KernelLabel(const Kernel& kernel, const LaunchConfig& config) {
  return config.empty() ? kernel.traits().name
                        : absl::StrCat(kernel.traits().name, " ", config.ToString());
}

void AddSkipped(const AttentionProblem& problem, const Kernel& kernel, const LaunchConfig& config,
                const absl::Status& why, Rows* rows) {
  ++rows->skipped;
  ++rows->reasons[std::string(why.message())];
  rows->Add(problem,
            {KernelLabel(kernel, config), "-", "-", "-", "-", "-", {"skipped", Colour::kYellow}},
            {{"problem", problem.ToString()},
             {"kernel", kernel.traits().name},
             {"config", config.ToString()},
             {"verdict", "skipped"},
             {"message", std::string(why.message())}});
}

void AddResult(const Plan& plan, int64_t seed, bool with_lse,
               const absl::StatusOr<oracle::VerifyResult>& result, Rows* rows) {
  Json json = {{"problem", plan.problem.ToString()},
               {"kernel", plan.kernel->traits().name},
               {"config", plan.config.ToString()},
               {"machine", MachineJson(plan.device)},
               {"seed", seed}};
  const std::string label = KernelLabel(*plan.kernel, plan.config);
  if (!result.ok()) {
    ++rows->failed;
    absl::StrAppend(&rows->details, "\n", result.status().message(), "\n");
    json["verdict"] = "failed";
    json["message"] = std::string(result.status().message());
    rows->Add(plan.problem, {label, "-", "-", "-", "-", "-", {"FAILED", Colour::kRed}},
              std::move(json));
    return;
  }
  ++(result->passed ? rows->passed : rows->failed);
  const std::string checked = result->rows_checked == result->rows
                                  ? absl::StrCat("all ", result->rows)
                                  : absl::StrCat(result->rows_checked, " of ", result->rows);
  if (!result->passed) absl::StrAppend(&rows->details, "\n", result->message);
  json["rows"] = result->rows;
  json["rows_checked"] = result->rows_checked;
  json["error"] = result->o.max_error;
  json["bound"] = result->o.bound;
  if (with_lse) {
    json["lse_error"] = result->lse.max_error;
    json["lse_bound"] = result->lse.bound;
  }
  json["verdict"] = result->passed ? "ok" : "wrong";
  if (!result->passed) json["message"] = result->message;
  rows->Add(
      plan.problem,
      {label, checked, ErrorNumber(result->o.max_error), ErrorNumber(result->o.bound),
       with_lse ? ErrorNumber(result->lse.max_error) : "-",
       with_lse ? ErrorNumber(result->lse.bound) : "-",
       result->passed ? Table::Cell("ok", Colour::kGreen) : Table::Cell("WRONG", Colour::kRed)},
      std::move(json));
}

// Parses lengths such as "3,0,17". An empty text has none.
absl::Status ParseLengths(absl::string_view flag, const std::string& text,
                          std::vector<int32_t>* lengths) {
  if (text.empty()) return absl::OkStatus();
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int32_t length = 0;
    if (!absl::SimpleAtoi(part, &length) || length < 0) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", part, "\" in \"", text,
                                                     "\" is not a length in 0..",
                                                     AttentionProblem::kMaxExtent));
    }
    lengths->push_back(length);
  }
  return absl::OkStatus();
}

// Checks that --q_lens and --kv_lens fit the problem.
absl::Status CheckChosenLengths(const AttentionProblem& problem,
                                const oracle::InputOptions& inputs) {
  const absl::Status s = oracle::Inputs::Check(problem, inputs);
  for (absl::string_view flag : {"q_lens", "kv_lens"}) {
    if (!absl::IsInvalidArgument(s) || !absl::StartsWith(s.message(), absl::StrCat(flag, ":"))) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--", s.message(), " (of ", problem.ToString(), ")"));
  }
  return absl::OkStatus();
}

// One row: a kernel and a configuration on a problem.
struct Step {
  AttentionProblem problem;
  const Kernel* kernel = nullptr;
  LaunchConfig config;
  absl::Status why_not;  // not OK: the reason for skipping the row
  Plan plan;
};

// An error means that the requested device cannot be used.
absl::StatusOr<Step> StepOf(const Flags& f, const AttentionProblem& problem, const Kernel& kernel,
                            const LaunchConfig& config, const oracle::InputOptions& inputs,
                            Rows::Taken* taken, Blame* blame) {
  Step step = {problem, &kernel, config, absl::OkStatus(), {}};
  const absl::StatusOr<DeviceInfo> device = DeviceFor(f.device, kernel);
  if (!device.ok()) {
    if (!LeavesOut(f.device, device.status())) return device.status();
    // On a machine with its device, the kernel might take the configuration.
    if (HasKeysOf(kernel, config)) taken->possible = true;
    blame->Add(device.status());
    step.why_not = device.status();
    return step;
  }
  absl::StatusOr<Plan> plan = PlanFor(kernel, problem, *device, config);
  step.why_not = plan.status();
  blame->Add(plan.status());
  if (!absl::IsInvalidArgument(plan.status())) {
    if (plan.ok() || HasKeysOf(kernel, config)) taken->possible = true;
  } else if (taken->reason.empty() || HasKeysOf(kernel, config)) {
    taken->reason = std::string(plan.status().message());
  }
  if (!plan.ok()) return step;
  step.plan = *std::move(plan);
  step.why_not = oracle::Inputs::Check(problem, inputs);
  blame->AddInputs(step.why_not);
  return step;
}

// The oracle is called once per problem.
std::vector<double> ExpectedSeconds(const std::vector<Step>& steps,
                                    const oracle::VerifyOptions& options) {
  std::vector<Plan> plans;
  for (const Step& step : steps) {
    if (step.why_not.ok()) plans.push_back(step.plan);
  }
  CallTimes times(plans);
  std::vector<double> seconds;
  const AttentionProblem* last = nullptr;
  for (const Step& step : steps) {
    seconds.push_back(0);
    if (!step.why_not.ok()) continue;
    seconds.back() = static_cast<double>(1 + options.reruns) * times.Seconds(step.plan);
    if (last != nullptr && *last == step.problem) continue;
    seconds.back() += OracleSeconds(step.problem, options.oracle_flops);
    last = &step.problem;
  }
  return seconds;
}

absl::Status VerifyAll(const Flags& f, const std::vector<AttentionProblem>& problems, Rows* rows) {
  oracle::VerifyOptions options;
  options.inputs.seed = static_cast<uint64_t>(f.seed);
  options.with_lse = f.lse;
  options.oracle_flops = f.oracle_flops;
  options.reruns = f.reruns;
  const absl::StatusOr<oracle::Layout> layout = oracle::ParseLayout(f.layout);
  if (!layout.ok()) return layout.status();
  options.inputs.layout = *layout;
  const absl::StatusOr<oracle::Values> values = oracle::ParseValues(f.values);
  if (!values.ok()) return values.status();
  options.inputs.values = *values;
  absl::Status s = ParseLengths("--q_lens", f.q_lens, &options.inputs.q_lens);
  if (s.ok()) s = ParseLengths("--kv_lens", f.kv_lens, &options.inputs.kv_lens);
  if (!s.ok()) return s;
  const absl::StatusOr<std::vector<const Kernel*>> kernels = KernelsOf(f.kernel);
  if (!kernels.ok()) return kernels.status();
  const absl::StatusOr<std::vector<LaunchConfig>> configs = ConfigsOf(f.configs, *kernels);
  if (!configs.ok()) return configs.status();
  for (const AttentionProblem& problem : problems) {
    s = CheckChosenLengths(problem, options.inputs);
    if (!s.ok()) return s;
  }
  rows->configs.resize(configs->size());

  std::vector<Step> steps;
  for (const AttentionProblem& problem : problems) {
    for (const Kernel* kernel : *kernels) {
      for (size_t i = 0; i < configs->size(); ++i) {
        absl::StatusOr<Step> step = StepOf(f, problem, *kernel, (*configs)[i], options.inputs,
                                           &rows->configs[i], &rows->blame);
        if (!step.ok()) return step.status();
        steps.push_back(*std::move(step));
      }
    }
  }
  Progress progress(stderr, static_cast<int64_t>(steps.size()));
  progress.Show(0, "planning");
  TimeLeft left(ExpectedSeconds(steps, options));
  for (size_t i = 0; i < steps.size() && !Interrupt::Pressed(); ++i) {
    const Step& step = steps[i];
    if (!step.why_not.ok()) {
      AddSkipped(step.problem, *step.kernel, step.config, step.why_not, rows);
      continue;
    }
    progress.Show(static_cast<int64_t>(i),
                  absl::StrCat(step.kernel->traits().name, " ", step.problem.ToString()),
                  left.Seconds(i));
    const absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(step.plan, options);
    if (absl::IsCancelled(result.status())) break;
    // Unimplemented: the kernel declines these strides (Prepared::Accepts()).
    if (absl::IsResourceExhausted(result.status()) || absl::IsUnimplemented(result.status())) {
      rows->blame.Add(result.status());
      AddSkipped(step.problem, *step.kernel, step.config, result.status(), rows);
    } else {
      AddResult(step.plan, f.seed, f.lse, result, rows);
    }
  }
  return absl::OkStatus();
}

void Print(const Rows& rows, const Streams& streams) {
  const CommonKeys problems = SplitCommon(rows.problems);
  const bool several = std::any_of(problems.rests.begin(), problems.rests.end(),
                                   [](const std::string& rest) { return !rest.empty(); });
  std::vector<Table::Column> columns;
  if (several) columns.push_back({"problem", Table::kLeft});
  columns.push_back({"kernel", Table::kLeft});
  for (const char* title : {"rows checked", "O error", "bound", "LSE error", "bound"}) {
    columns.push_back({title, Table::kRight});
  }
  columns.push_back({"verdict", Table::kLeft});
  Table table(std::move(columns));
  for (size_t i = 0; i < rows.cells.size(); ++i) {
    std::vector<Table::Cell> cells = rows.cells[i];
    if (several) cells.insert(cells.begin(), Table::Cell(problems.rests[i]));
    table.AddRow(std::move(cells));
  }
  if (!problems.common.empty()) streams.out << problems.common << "\n\n";
  streams.out << table.Text(streams.colours, streams.columns) << rows.details << "\n"
              << rows.passed << " ok, " << rows.failed << " wrong, " << rows.skipped
              << " skipped\n";
  for (const auto& [reason, count] : rows.reasons) {
    streams.out << "skipped " << count << ": " << reason << "\n";
  }
}

}  // namespace

int Verify(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "verify", arguments, streams, &code)) return code;
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(flags.formats);
  if (!files.ok()) return Fail(streams, "verify", files.status());
  if (flags.problem.problems.empty() && flags.problem.presets.empty()) {
    flags.problem.problems = {kDefaultProblem};
  }
  absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(flags.problem);
  if (!problems.ok()) return Fail(streams, "verify", problems.status());
  if (flags.accuracy) {
    for (const char* flag : {"kernel", "config", "layout", "values", "q_lens", "kv_lens", "lse",
                             "oracle_flops", "reruns"}) {
      if (!parser.Given(flag)) continue;
      return Fail(
          streams, "verify",
          absl::InvalidArgumentError(absl::StrCat(
              "--", flag, " is not for --accuracy, which has kernels and inputs of its own")));
    }
    return VerifyAccuracy(*problems, flags.device, flags.seed, flags.formats, *files, streams);
  }
  Rows rows;
  bool interrupted = false;
  {
    const StopOnCtrlC stop("verify");
    const absl::Status s = VerifyAll(flags, *problems, &rows);
    if (!s.ok()) return Fail(streams, "verify", s);
    interrupted = Interrupt::Pressed();
  }
  if (!interrupted || !rows.cells.empty()) {
    const Json json = {
        {"command", "verify"}, {"attnlab", AttnlabJson()}, {"date", UtcNow()}, {"rows", rows.json}};
    const absl::Status s = files->Write(json, rows.json, streams);
    if (flags.formats.Tables()) Print(rows, streams);
    if (!s.ok()) return Fail(streams, "verify", s);
  }
  streams.out << std::flush;
  if (interrupted) return Interrupted(streams, "verify", rows.cells.empty());
  if (rows.failed > 0) return kFailed;
  // Otherwise a mistyped value beside a good one would look verified.
  for (const Rows::Taken& taken : rows.configs) {
    if (taken.possible || taken.reason.empty()) continue;
    return Fail(streams, "verify",
                absl::InvalidArgumentError(absl::StrCat(
                    "--config: no kernel takes one of the configurations: ", taken.reason)));
  }
  return rows.passed > 0 ? kOk : Fail(streams, "verify", rows.blame.NothingDone());
}

}  // namespace attnlab::command
