// attnlab run: attention on tensors from files, or on generated ones.
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/attention.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/verify.h"
#include "tools/command/command.h"
#include "tools/command/machine.h"
#include "tools/command/selection.h"
#include "tools/command/time_left.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/files.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"
#include "tools/tensor_files/npy.h"
#include "tools/tensor_files/outputs.h"
#include "tools/tensor_files/tensor_files.h"

namespace attnlab::command {
namespace {

struct Flags {
  TensorFiles files;
  std::string layout = "bshd";
  ProblemFlags problem;
  int64_t seed = 0;
  std::string kernel, device = "auto", config;
  std::string out, lse, out_dtype = "auto";
  bool verify = false;
  Formats formats;
};

ArgumentParser MakeParser(Flags* f) {
  ArgumentParser parser("attnlab run",
                        "Computes attention on .npy files, or on inputs generated from a seed.");
  parser.AddGroup("Inputs from files");
  parser.AddString("q", "FILE", &f->files.q, "queries, see --layout; - is the standard input");
  parser.AddString("k", "FILE", &f->files.k, "keys; with fewer heads than Q for grouped queries");
  parser.AddString("v", "FILE", &f->files.v, "values");
  parser.AddString("qkv", "FILE", &f->files.qkv, "Q, K and V in one file of shape [B, T, 3, H, D]");
  parser.AddString("layout", "L", &f->layout,
                   "of Q, K, V, O: bshd, [B, S, H, D], or bhsd, [B, H, S, D] [bshd]");
  parser.AddString("q_len", "FILE", &f->files.q_len,
                   "queries of each padded sequence: B int32 or int64 [S]");
  parser.AddString("kv_len", "FILE", &f->files.kv_len,
                   "keys of each padded sequence: B int32 or int64 [S]");
  parser.AddString("cu_seqlens_q", "FILE", &f->files.cu_seqlens_q,
                   "begin of each packed sequence of queries, and the end; B is 1");
  parser.AddString("cu_seqlens_kv", "FILE", &f->files.cu_seqlens_kv, "the same for keys");
  parser.AddString("mask", "MASK", &f->files.mask,
                   "none, causal (aligned to the last key), window:LEFT:RIGHT [none]");
  parser.AddString("scale", "X", &f->files.scale, "factor on Q K^T [1/sqrt(D)]");
  parser.AddString("softcap", "X", &f->files.softcap, "X: a score s becomes X tanh(s / X) [none]");
  parser.AddGroup("Inputs from a seed");
  parser.AddStrings("problem", "LINE", &f->problem.problems,
                    "one problem in the one-line form below, or a preset");
  parser.AddStrings("preset", "NAME", &f->problem.presets,
                    "gpt2, or MODEL-PHASE-LENGTH, as in llama3-8b-decode-4k");
  parser.AddInteger("seed", "N", &f->seed, 0, INT64_MAX, "seed of the inputs [0]");
  parser.AddGroup("How");
  parser.AddString("dtype", "DTYPE", &f->files.dtype,
                   "fp32, fp16 or bf16 to compute in [as the inputs; fp32 for fp64]");
  parser.AddString("kernel", "NAME", &f->kernel,
                   "kernel [the preferred one of those that do the problem]");
  parser.AddString("device", "D", &f->device,
                   "auto (a GPU where a kernel does the problem), cpu, cuda:N [auto]");
  parser.AddString("config", "LINE", &f->config,
                   "launch configuration, key=value,…; `attnlab list` has the keys");
  parser.AddGroup("Results");
  parser.AddString("out", "FILE", &f->out, "write O, in the layout of Q; - is the standard output");
  parser.AddOptional("lse", "FILE", &f->lse, "",
                     "with a file: write the log-sum-exp (natural log), fp32, [B, H, S]");
  parser.AddString("out_dtype", "DTYPE", &f->out_dtype,
                   "fp16, bf16, fp32, fp64, or auto, as computed [auto]");
  parser.AddBool("verify", &f->verify, "check O and LSE of this call against the oracle [false]");
  AddJsonFlag(&parser, &f->formats);
  parser.AddSection("The one-line form of a problem", kOneProblemHelp);
  parser.AddSection("Files",
                    "Inputs are rounded to --dtype; one that is too large for it is an error.\n"
                    "NumPy reads bf16 as V2: numpy.load(f).view(ml_dtypes.bfloat16) is the array.");
  parser.AddSection("Examples",
                    "attnlab run --q=q.npy --k=k.npy --v=v.npy --mask=causal --out=o.npy\n"
                    "attnlab run --qkv=qkv.npy --scale=0.125 --out=o.npy --lse=lse.npy\n"
                    "attnlab run --q=- --k=k.npy --v=v.npy --out=- < q.npy > o.npy\n"
                    "attnlab run --preset=gpt2,b=1 --seed=7 --kernel=reference --out=o.npy");
  return parser;
}

// Checks that the inputs come from one source, and that no flag belongs to another.
absl::Status CheckSource(const Flags& f, const ArgumentParser& parser) {
  const bool generated = !f.problem.problems.empty() || !f.problem.presets.empty();
  const bool separate = !f.files.q.empty() || !f.files.k.empty() || !f.files.v.empty();
  const bool fused = !f.files.qkv.empty();
  if (generated + separate + fused == 0) {
    return absl::InvalidArgumentError(
        "no inputs; give --q, --k and --v, or --qkv, or --problem, or --preset");
  }
  if (generated + separate + fused > 1) {
    return absl::InvalidArgumentError(
        "inputs come from --q, --k and --v, or from --qkv, or from --problem or --preset; give "
        "one of these");
  }
  if (separate) {
    for (const char* name : {"q", "k", "v"}) {
      if (!parser.Given(name)) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " is missing"));
      }
    }
  }
  if (fused && parser.Given("layout")) {
    return absl::InvalidArgumentError(
        "--layout does not go with --qkv, whose layout is [B, T, 3, H, D]");
  }
  if (generated) {
    for (const char* name :
         {"q_len", "kv_len", "cu_seqlens_q", "cu_seqlens_kv", "mask", "scale", "softcap"}) {
      if (parser.Given(name)) {
        const bool length = absl::StrContains(name, "len");
        return absl::InvalidArgumentError(absl::StrCat(
            "--", name, " goes with files; ",
            length ? "with --problem or --preset, lens=padded and lens=packed draw lengths from "
                     "--seed, and `attnlab verify --q_lens=N,N,… --kv_lens=N,N,…` takes chosen ones"
                   : absl::StrCat("in --problem or --preset it is ", name, "=VALUE in the line")));
      }
    }
  } else if (parser.Given("seed")) {
    return absl::InvalidArgumentError("--seed goes with --problem or --preset, not with files");
  }
  return absl::OkStatus();
}

// Checks that at most one input is the standard input.
absl::Status CheckInputs(const TensorFiles& t) {
  const std::pair<absl::string_view, const std::string&> kInputs[] = {
      {"--q", t.q},
      {"--k", t.k},
      {"--v", t.v},
      {"--qkv", t.qkv},
      {"--q_len", t.q_len},
      {"--kv_len", t.kv_len},
      {"--cu_seqlens_q", t.cu_seqlens_q},
      {"--cu_seqlens_kv", t.cu_seqlens_kv}};
  absl::string_view first;
  for (const auto& [flag, path] : kInputs) {
    if (path != "-") continue;
    if (!first.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(first, " and ", flag, " are both the standard input, which has one file"));
    }
    first = flag;
  }
  return absl::OkStatus();
}

// Checks that at most one result goes to the standard output, and no .npy file to a terminal.
absl::Status CheckStandardOutput(const Flags& f) {
  const std::pair<absl::string_view, const std::string&> kResults[] = {
      {"--out", f.out}, {"--lse", f.lse}, {"--json", f.formats.json}};
  absl::string_view first;
  for (const auto& [flag, path] : kResults) {
    if (path != "-") continue;
    if (!first.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          first, " and ", flag, " both go to the standard output; give one of them a file"));
    }
    first = flag;
    if (flag != "--json" && isatty(STDOUT_FILENO) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag, ": the standard output is a terminal, and .npy is binary; > FILE redirects it"));
    }
  }
  return absl::OkStatus();
}

// Checks that no output overwrites an input or another output, and that each can be written.
absl::Status CheckOutputs(const Flags& f) {
  const TensorFiles& t = f.files;
  const std::string json = ResolvePath(f.formats.json);
  const std::pair<const char*, const std::string*> outputs[] = {
      {"--out", &f.out}, {"--lse", &f.lse}, {"--json", &json}};
  for (const auto& [name, output] : outputs) {
    if (output->empty() || *output == "-") continue;
    for (const std::string* input :
         {&t.q, &t.k, &t.v, &t.qkv, &t.q_len, &t.kv_len, &t.cu_seqlens_q, &t.cu_seqlens_kv}) {
      if (!input->empty() && SameFile(*output, *input)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": ", *output, " is the input ", *input, ", which stays as it is"));
      }
    }
    for (const auto& [other_name, other] : outputs) {
      if (other == output) break;
      if (!other->empty() && *other != "-" && SameFile(*output, *other)) {
        return absl::InvalidArgumentError(
            absl::StrCat(other_name, " and ", name, " are both ", *output));
      }
    }
    // An error now, not after minutes of computing. This creates no visible file.
    if (absl::Status s = AtomicFile::Create(*output).status(); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat(name, ": ", s.message()));
    }
  }
  return CheckStandardOutput(f);
}

absl::StatusOr<NpyType> OutType(const std::string& text, DType dtype) {
  if (text == "auto") return NpyTypeOf(dtype);
  for (NpyType type :
       {NpyType::kFloat16, NpyType::kBFloat16, NpyType::kFloat32, NpyType::kFloat64}) {
    if (text == Name(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--out_dtype: \"", text, "\" is not one of auto, fp16, bf16, fp32, fp64"));
}

// Errors of O and LSE against the oracle.
struct Check {
  oracle::Errors errors;
  int64_t rows = 0, rows_checked = 0;

  bool Passed() const { return errors.o.Passed() && errors.lse.Passed(); }
};

struct Report {
  const Plan& plan;
  double seconds;
  const Outputs& outputs;
  const Flags& flags;
  NpyType out_type;
  const std::optional<Check>& check;
};

Json SummaryJson(const Outputs::Summary& s, const std::vector<int64_t>& shape,
                 absl::string_view dtype, const std::string& path) {
  Json json = {{"shape", shape},        {"dtype", std::string(dtype)},
               {"min", s.min},          {"max", s.max},
               {"mean", s.mean},        {"nan", s.nan},
               {"infinite", s.infinite}};
  if (!path.empty()) json["file"] = path;
  return json;
}

std::string SummaryLine(const Outputs::Summary& s, const std::vector<int64_t>& shape,
                        absl::string_view dtype, const std::string& path) {
  std::string line = absl::StrCat(dtype, " [", absl::StrJoin(shape, ", "), "]");
  if (s.elements > s.nan + s.infinite) {
    absl::StrAppend(&line, ", mean ", Digits(s.mean), ", from ", Digits(s.min), " to ",
                    Digits(s.max));
  }
  if (s.nan > 0) absl::StrAppend(&line, ", ", s.nan, " NaN");
  if (s.infinite > 0) absl::StrAppend(&line, ", ", s.infinite, " infinite");
  if (!path.empty()) {
    absl::StrAppend(&line, ", written to ", path == "-" ? "the standard output" : path);
  }
  return line;
}

Json ReportJson(const Report& r) {
  const Outputs::Summary o = r.outputs.SummaryOfO(), lse = r.outputs.SummaryOfLse();
  Json json = {{"command", "run"},
               {"attnlab", AttnlabJson()},
               {"problem", r.plan.problem.ToString()},
               {"kernel", r.plan.kernel->traits().name},
               {"config", r.plan.config.ToString()},
               {"machine", MachineJson(r.plan.device)},
               {"seconds", r.seconds},
               {"o", SummaryJson(o, r.outputs.o_shape(), Name(r.out_type), r.flags.out)},
               {"lse", SummaryJson(lse, r.outputs.lse_shape(), "fp32", r.flags.lse)}};
  if (!r.check) return json;
  json["rows"] = r.check->rows;
  json["rows_checked"] = r.check->rows_checked;
  json["error"] = r.check->errors.o.max_error;
  json["bound"] = r.check->errors.o.bound;
  json["lse_error"] = r.check->errors.lse.max_error;
  json["lse_bound"] = r.check->errors.lse.bound;
  json["verdict"] = r.check->Passed() ? "ok" : "wrong";
  return json;
}

std::string CheckText(const Check& check) {
  std::string text = absl::StrCat(check.Passed() ? "ok" : "WRONG", ", ", check.rows_checked, " of ",
                                  Counted(check.rows, "row"));
  for (const auto& [name, error] :
       {std::pair{"O", check.errors.o}, std::pair{"LSE", check.errors.lse}}) {
    absl::StrAppend(&text, "; ", name, " ",
                    error.Passed() ? absl::StrCat("error ", ErrorNumber(error.max_error),
                                                  ", bound ", ErrorNumber(error.bound))
                                   : error.ToString());
  }
  return text;
}

void Print(const Report& r, const Streams& streams) {
  const Outputs::Summary o = r.outputs.SummaryOfO(), lse = r.outputs.SummaryOfLse();
  const KernelTraits& traits = r.plan.kernel->traits();
  streams.out << "problem  " << r.plan.problem.ToString() << "\n"
              << "kernel   " << traits.name << " on " << ToString(r.plan.device.device) << ": "
              << r.plan.device.name << ", " << MachineSummary(r.plan.device) << "\n"
              << "time     " << Seconds(r.seconds) << ", one cold call; `attnlab bench` measures\n"
              << "O        " << SummaryLine(o, r.outputs.o_shape(), Name(r.out_type), r.flags.out)
              << "\n"
              << "LSE      " << SummaryLine(lse, r.outputs.lse_shape(), "fp32", r.flags.lse)
              << "\n";
  if (r.check) streams.out << "verify   " << CheckText(*r.check) << "\n";
}

// The inputs. Loaded ones are on the host, with a copy on the plan's device.
struct Source {
  std::optional<LoadedTensors> loaded, there;
  std::optional<oracle::Inputs> generated;

  const AttentionTensors& OnHost() const {
    return loaded ? loaded->tensors : generated->host_tensors();
  }
  const AttentionTensors& OnDevice() const {
    return loaded ? there->tensors : generated->tensors();
  }
};

absl::StatusOr<AttentionProblem> TheProblem(const Flags& f, Source* source) {
  if (f.problem.problems.empty() && f.problem.presets.empty()) {
    absl::StatusOr<LoadedTensors> loaded = LoadTensors(f.files);
    if (!loaded.ok()) return loaded.status();
    const AttentionProblem problem = loaded->problem;
    source->loaded = *std::move(loaded);
    return problem;
  }
  ProblemFlags flags = f.problem;
  flags.dtype = f.files.dtype;
  absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(flags);
  if (!problems.ok()) return problems.status();
  if (problems->size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("run takes one problem, and the flags give ",
                                                   problems->size(), "; bench takes several"));
  }
  return problems->front();
}

// The plan of the call. Reads the files, whose shapes make the problem.
absl::StatusOr<Plan> PlanOf(const Flags& f, Source* source) {
  absl::StatusOr<std::vector<const Kernel*>> kernels = KernelsOf(f.kernel);
  if (!kernels.ok()) return kernels.status();
  if (f.kernel == "all") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--kernel: run takes one kernel, as in --kernel=", kernels->back()->traits().name,
        "; without the flag it takes the one with the highest preference"));
  }
  const bool any = f.kernel.empty();
  if (!any && kernels->size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kernel: run takes one kernel, and \"", f.kernel, "\" names several"));
  }
  const absl::StatusOr<std::vector<LaunchConfig>> configs =
      ConfigsOf(f.config.empty() ? std::vector<std::string>() : std::vector<std::string>{f.config});
  if (!configs.ok()) return configs.status();
  if (configs->size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("--config: run takes one configuration, and \"",
                                                   f.config, "\" stands for ", configs->size()));
  }
  const absl::StatusOr<AttentionProblem> problem = TheProblem(f, source);
  if (!problem.ok()) return problem.status();
  const LaunchConfig& config = configs->front();
  const absl::StatusOr<DeviceInfo> device = DeviceOf(f.device, *problem, *kernels, config);
  if (!device.ok()) return device.status();
  absl::StatusOr<Plan> plan =
      MakePlan(*problem, device->device, any ? "" : kernels->front()->traits().name, config);
  if (!plan.ok()) return plan;
  const absl::StatusOr<Plan> checked = PlanFor(*plan->kernel, *problem, *device, config);
  return checked.ok() ? plan : checked;  // the plan by name has no `otherwise`
}

// Copies the inputs to the device, or generates them there.
absl::Status Place(const Flags& f, const Plan& plan, Source* source) {
  const Device device = plan.device.device;
  if (source->loaded) {
    absl::StatusOr<LoadedTensors> there = CopyTo(*source->loaded, device);
    if (!there.ok()) return there.status();
    source->there = *std::move(there);
    return absl::OkStatus();
  }
  oracle::InputOptions options;
  options.seed = static_cast<uint64_t>(f.seed);
  absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(plan.problem, device, options);
  if (!inputs.ok()) return inputs.status();
  source->generated = *std::move(inputs);
  return absl::OkStatus();
}

// The expected time of the call, for the progress line. Nothing for short calls, where the estimate
// takes longer than the call, and on GPUs, where all calls are short.
std::optional<double> ExpectedSeconds(const Plan& plan) {
  constexpr double kWorthIt = 1e10;  // FLOPs
  if (plan.device.device.kind != DeviceKind::kCpu) return std::nullopt;
  if (CompulsoryTraffic(plan.problem).flops < kWorthIt) return std::nullopt;
  return CallTimes({plan}).Seconds(plan);
}

// Runs the call and returns false if --verify finds O or LSE wrong.
absl::StatusOr<bool> RunOne(const Flags& f, const Streams& streams) {
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(f.formats);
  if (!files.ok()) return files.status();
  Source source;
  absl::StatusOr<Plan> plan = PlanOf(f, &source);
  if (!plan.ok()) return plan.status();
  const absl::StatusOr<NpyType> out_type = OutType(f.out_dtype, plan->problem.ODType());
  if (!out_type.ok()) return out_type.status();
  const Device device = plan->device.device;
  // Not before the files are read: a pipe may wait for ever, and Ctrl-C has to end that.
  const StopOnCtrlC stop("run");
  Progress progress(stderr, f.verify ? 2 : 1);
  progress.Show(0, "making inputs");
  if (absl::Status s = Place(f, *plan, &source); !s.ok()) return s;
  AttentionTensors tensors = source.OnDevice();
  absl::StatusOr<Outputs> outputs =
      Outputs::Make(plan->problem, tensors, f.files.layout,
                    !source.loaded.has_value() || source.loaded->has_batch_axis);
  if (!outputs.ok()) return outputs.status();
  outputs->AddTo(&tensors);
  absl::StatusOr<Buffer> workspace = Buffer::Allocate(device, plan->workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  absl::StatusOr<oracle::Expected> expected;
  if (f.verify) {
    progress.Show(0, "the oracle");
    expected =
        oracle::ExpectedOf(*plan, source.OnHost(), source.OnDevice(),
                           oracle::VerifyOptions().oracle_flops, static_cast<uint64_t>(f.seed));
    if (!expected.ok()) return expected.status();
  }
  progress.Show(f.verify ? 1 : 0, plan->kernel->traits().name, ExpectedSeconds(*plan));

  const auto start = std::chrono::steady_clock::now();
  absl::Status s = Forward(*plan, tensors, {workspace->data(), workspace->bytes()});
  if (s.ok() && device.kind == DeviceKind::kCuda) s = cuda_backend::Synchronize(device.ordinal);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (s.ok()) s = outputs->Fetch();
  if (!s.ok()) return s;
  // On a GPU, Ctrl-C does not stop the call.
  if (Interrupt::Pressed()) return absl::CancelledError("interrupted");
  progress.Clear();
  std::optional<Check> check;
  if (f.verify) {
    const AttentionTensors& host = source.OnHost();
    check =
        Check{oracle::ErrorsOf(*plan, host, *expected, outputs->OnHost()),
              oracle::RowsInUse(plan->problem, host), static_cast<int64_t>(expected->rows.size())};
  }
  if (!f.out.empty()) s = outputs->WriteO(f.out, *out_type);
  if (s.ok() && !f.lse.empty()) s = outputs->WriteLse(f.lse);
  if (!s.ok()) return s;
  const Report report = {*plan, seconds.count(), *outputs, f, *out_type, check};
  if (f.formats.Tables()) {
    const bool taken = f.out == "-" || f.lse == "-";
    Print(report, taken ? Streams{streams.err, streams.err} : streams);
  }
  s = files->Write(ReportJson(report), {}, streams);
  if (!s.ok()) return s;
  return !check || check->Passed();
}

}  // namespace

int Run(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "run", arguments, streams, &code)) return code;
  absl::Status s = CheckSource(flags, parser);
  if (!s.ok()) return Fail(streams, "run", s, "`attnlab run --help` has examples");
  const absl::StatusOr<FileLayout> layout = ParseFileLayout(flags.layout);
  if (!layout.ok()) return Fail(streams, "run", layout.status());
  flags.files.layout = *layout;
  for (std::string* path : {&flags.files.q, &flags.files.k, &flags.files.v, &flags.files.qkv,
                            &flags.files.q_len, &flags.files.kv_len, &flags.files.cu_seqlens_q,
                            &flags.files.cu_seqlens_kv, &flags.out, &flags.lse}) {
    *path = ResolvePath(*path);
  }
  s = CheckInputs(flags.files);
  if (s.ok()) s = CheckOutputs(flags);
  if (!s.ok()) return Fail(streams, "run", s);
  const absl::StatusOr<bool> right = RunOne(flags, streams);
  if (absl::IsCancelled(right.status())) return Interrupted(streams, "run", /*nothing=*/true);
  if (!right.ok()) return Fail(streams, "run", right.status());
  return *right ? kOk : kFailed;
}

}  // namespace attnlab::command
