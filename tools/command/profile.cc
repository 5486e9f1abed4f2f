// attnlab profile: what kernels move and how they stand against the card, by its own counters.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/attention.h"
#include "attention/testing/verify.h"
#include "profiling/ceilings.h"
#include "profiling/ceilings_cache.h"
#include "profiling/counters.h"
#include "profiling/kernel_profile.h"
#include "profiling/quantities.h"
#include "profiling/report/report.h"
#include "tools/arguments.h"
#include "tools/command/bench_plans.h"
#include "tools/command/command.h"
#include "tools/command/interrupt.h"
#include "tools/command/json.h"
#include "tools/command/list_metrics.h"
#include "tools/command/profile_report.h"
#include "tools/command/selection.h"
#include "tools/files.h"
#include "tools/terminal.h"

namespace attnlab::command {
namespace {

// Whose metrics are listed where there is no GPU.
constexpr char kUsualChip[] = "GH100";

struct Flags {
  ProblemFlags problem;
  std::string kernel = "all", device = "cuda:0";
  std::vector<std::string> configs;
  std::string set = "traffic";
  std::vector<std::string> metrics;
  std::string ceilings = "kept";
  bool verify = true;
  bool list_metrics = false;
  std::string chip, match;
  bool json = false;
  std::string html;
  ProfileReport report;
};

ArgumentParser MakeParser(Flags* f) {
  ArgumentParser parser(
      "attnlab profile",
      "Runs kernels on a GPU under its counters: how many bytes they read from and write to HBM, "
      "beside\ntheir own model and what any kernel must move, and how near they come to what the "
      "card allows.");
  parser.AddGroup("What");
  AddProblemFlags(&parser, &f->problem);
  parser.AddString("kernel", "NAMES", &f->kernel,
                   "all (the default: those of GPUs that do the problem), or names as in a,b.");
  parser.AddString("device", "D", &f->device, "cuda:N; by default cuda:0.");
  parser.AddStrings("config", "LINE", &f->configs,
                    "Launch configuration, key=value,…, each a row; with lists and ranges as in "
                    "block=32..512. Repeatable. `attnlab list` has each kernel's keys.");
  parser.AddGroup("Counters");
  parser.AddString("set", "NAME", &f->set,
                   absl::StrCat("Which: ", absl::StrJoin(profiling::Sets(), ", "),
                                ", or none. traffic is the default."));
  parser.AddStrings("metric", "NAME", &f->metrics,
                    "One of CUPTI's, besides the set, such as sm__warps_launched.sum. Repeatable.");
  parser.AddBool("list_metrics", &f->list_metrics,
                 "Print what the sets are made of on this GPU, and in how many passes over a "
                 "kernel; needs no GPU with --chip.");
  parser.AddString("chip", "NAME", &f->chip, "With --list_metrics: of a chip, GH100 say.");
  parser.AddString("match", "TEXT", &f->match,
                   "With --list_metrics: all metrics with this in their name.");
  parser.AddGroup("How");
  parser.AddInteger("repetitions", "N", &f->report.repetitions, 1, 1000,
                    "Of which medians are taken. 3.");
  parser.AddString("ceilings", "HOW", &f->ceilings,
                   "kept (the default: measured once a GPU and driver), anew, or none.");
  parser.AddInteger("seed", "N", &f->report.seed, 0, INT64_MAX,
                    "The same seed, the same inputs. 0.");
  parser.AddBool("lse", &f->report.lse, "Have kernels write the log-sum-exp, too.");
  parser.AddBool("verify", &f->verify, "Verify each kernel, too: true by default.");
  parser.AddGroup("Results");
  parser.AddString("commit", "ID", &f->report.commit,
                   "Goes into every JSON row; by default $ATTNLAB_COMMIT.");
  parser.AddBool("json", &f->json, "Print JSON.");
  parser.AddString("html", "FILE", &f->html,
                   "Write a report that a browser shows, one file, no network.");
  parser.AddSection("The one-line form of a problem", kProblemHelp);
  parser.AddSection(
      "Columns",
      "time           of a call, from the beginning of its first kernel to the end of its last\n"
      "TFLOP/s        the two matrix products over what the mask lets through, over the time\n"
      "HBM read       bytes that were read from HBM, of a call that begins with an empty L2\n"
      "  model        times what the kernel's own model says\n"
      "  least        times what any kernel must read\n"
      "HBM written    the same; up to an L2 of it may not have gone there yet\n"
      "roofline       of the FLOP/s that the card's ceilings allow with the bytes that it moved\n"
      "least roofline the same with those that any kernel must move: what is left to gain");
  parser.AddSection("Examples",
                    "attnlab profile --problem=llama3-8b-prefill-4k\n"
                    "attnlab profile --kernel=fa2 --problem=gpt2,dtype=bf16 --set=all\n"
                    "attnlab profile --kernel=fa2 --problem=gpt2,dtype=bf16 --set=none "
                    "--metric=sm__warps_launched.sum\n"
                    "attnlab profile --problem='hq=8,sq=1024..16384,d=64,dtype=bf16' --json\n"
                    "attnlab profile --problem=llama3-8b-prefill-4k --html=profile.html\n"
                    "attnlab profile --list_metrics --chip=GH100\n"
                    "attnlab profile --list_metrics --chip=GH100 --match=dram__bytes");
  parser.AddSection("Exit codes", kExitCodesHelp);
  return parser;
}

absl::StatusOr<BenchSelection> SelectionOf(const Flags& f) {
  BenchSelection selection;
  selection.names = f.kernel;
  selection.device = f.device;
  selection.seed = static_cast<uint64_t>(f.report.seed);
  absl::StatusOr<std::vector<const Kernel*>> kernels = KernelsOf(f.kernel);
  if (!kernels.ok()) return kernels.status();
  selection.kernels = *std::move(kernels);
  absl::StatusOr<std::vector<LaunchConfig>> configs = ConfigsOf(f.configs);
  if (!configs.ok()) return configs.status();
  selection.configs = *std::move(configs);
  absl::Status s = CheckConfigKeys(selection.configs, selection.kernels);
  if (!s.ok()) return s;
  return selection;
}

// Fills in verdict and remark.
void Judge(const Flags& f, ProfileRow* row) {
  row->verdict = "not checked";
  if (!f.verify || !row->profile.status.ok() || Interrupt::Pressed()) return;
  testing::VerifyOptions options;
  options.inputs.seed = static_cast<uint64_t>(f.report.seed);
  options.rerun = false;  // the conformance suite does that
  const absl::StatusOr<testing::VerifyResult> result = testing::Verify(row->profile.plan, options);
  if (absl::IsResourceExhausted(result.status())) {
    row->remark = std::string(result.status().message());
  } else if (!result.ok() || !result->passed) {
    row->verdict = "WRONG";
    row->remark = result.ok() ? result->message : std::string(result.status().message());
  } else {
    row->verdict = "ok";
  }
}

absl::Status WriteHtml(const std::string& html, const Json& profile) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(ResolvePath(html));
  if (!file.ok()) return file.status();
  const std::string page = profiling::HtmlReport(profile);
  const absl::Status s = file->Append(page.data(), static_cast<int64_t>(page.size()));
  return s.ok() ? file->Commit() : s;
}

absl::Status CheckFlags(const Flags& f) {
  if (f.ceilings != "kept" && f.ceilings != "anew" && f.ceilings != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat("--ceilings: ", f.ceilings, " is not one of kept, anew, none"));
  }
  const absl::StatusOr<Device> device = ParseDevice(f.device);
  if (!device.ok()) return device.status();
  if (device->kind != DeviceKind::kCuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: ", f.device, " has no counters; cuda:0 is a GPU"));
  }
  const absl::Span<const absl::string_view> sets = profiling::Sets();
  if (f.set != "none" && std::find(sets.begin(), sets.end(), f.set) == sets.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set: ", f.set, " is not one of ", absl::StrJoin(sets, ", "), ", none"));
  }
  if (!f.list_metrics && (!f.chip.empty() || !f.match.empty())) {
    return absl::InvalidArgumentError("--chip and --match go with --list_metrics");
  }
  if (f.list_metrics || f.html.empty()) return absl::OkStatus();
  // Where it cannot be written that is said now, and not after all the measuring.
  return AtomicFile::Create(ResolvePath(f.html)).status();
}

absl::Status List(const Flags& f, const Streams& streams) {
  std::string chip = f.chip;
  if (chip.empty()) {
    const absl::StatusOr<DeviceInfo> device = InfoOf(*ParseDevice(f.device));
    const absl::StatusOr<std::string> of_gpu =
        device.ok() ? profiling::ChipOf(device->device.ordinal) : device.status();
    chip = of_gpu.value_or(kUsualChip);
    if (!of_gpu.ok()) {
      streams.err << "attnlab profile: " << of_gpu.status().message() << ". So these are of "
                  << chip << "; --chip=NAME has those of another\n";
    }
  }
  return ListMetrics(chip, f.match, f.json, streams);
}

absl::Status MeasureOrRead(const Flags& f, int ordinal, Progress* progress, ProfileReport* report,
                           const Streams& streams) {
  if (f.ceilings == "none") return absl::OkStatus();
  const absl::StatusOr<profiling::CeilingsKey> key = profiling::CeilingsKeyOf(ordinal);
  if (!key.ok()) return key.status();
  const absl::StatusOr<profiling::KeptCeilings> kept =
      profiling::KeepCeilings(profiling::CacheDirectory(), *key, f.ceilings == "anew", [&] {
        progress->Show(0, "measuring the ceilings");
        return profiling::MeasureCeilings(ordinal);
      });
  if (!kept.ok()) return kept.status();
  if (!kept->remark.empty()) streams.err << "attnlab profile: " << kept->remark << "\n";
  report->ceilings = kept->ceilings;
  return absl::OkStatus();
}

absl::Status ProfileAll(const Flags& f, ProfileReport* report, LeftOut* left_out,
                        const Streams& streams) {
  const absl::StatusOr<BenchSelection> selection = SelectionOf(f);
  if (!selection.ok()) return selection.status();
  const absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f.problem);
  if (!problems.ok()) return problems.status();
  if (problems->empty()) {
    return absl::InvalidArgumentError(
        "--problem: none is given; llama3-8b-prefill-4k is one of those that `attnlab list` has");
  }
  const absl::StatusOr<DeviceInfo> device = InfoOf(*ParseDevice(f.device));
  if (!device.ok()) return device.status();
  const absl::StatusOr<std::string> chip = profiling::ChipOf(device->device.ordinal);
  if (!chip.ok()) return chip.status();
  report->chip = *chip;

  Progress progress(stderr, static_cast<int64_t>(problems->size()));
  absl::Status s = MeasureOrRead(f, device->device.ordinal, &progress, report, streams);
  if (!s.ok()) return s;
  profiling::ProfileOptions options;
  options.seed = selection->seed;
  options.with_lse = report->lse;
  options.set = f.set == "none" ? "" : f.set;
  options.metrics = f.metrics;
  options.repetitions = report->repetitions;
  options.stopped = Interrupt::Pressed;
  for (size_t i = 0; i < problems->size() && !Interrupt::Pressed(); ++i) {
    const AttentionProblem& problem = (*problems)[i];
    options.progress = [&](absl::string_view what) {
      progress.Show(static_cast<int64_t>(i), absl::StrCat(what, ": ", problem.ToString()));
    };
    const absl::StatusOr<std::vector<Plan>> plans = PlansOf(problem, *selection, left_out);
    if (!plans.ok()) return plans.status();
    absl::StatusOr<std::vector<profiling::KernelProfile>> profiles =
        profiling::ProfileKernels(*plans, options);
    if (absl::IsResourceExhausted(profiles.status())) {
      left_out->Add(profiles.status(), problem.ToString());
      continue;
    }
    if (!profiles.ok()) return profiles.status();
    for (profiling::KernelProfile& profile : *profiles) {
      if (absl::IsCancelled(profile.status)) continue;
      options.progress(absl::StrCat("verifying ", profile.plan.kernel->traits().name));
      report->rows.push_back({std::move(profile), "", ""});
      Judge(f, &report->rows.back());
    }
  }
  return absl::OkStatus();
}

}  // namespace

int Profile(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  flags.report.repetitions = 3;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "profile", arguments, streams, &code)) return code;
  if (const absl::Status s = CheckFlags(flags); !s.ok()) return Fail(streams, "profile", s);
  if (flags.list_metrics) {
    const absl::Status s = List(flags, streams);
    return s.ok() ? kOk : Fail(streams, "profile", s);
  }
  if (const char* commit = std::getenv("ATTNLAB_COMMIT");
      flags.report.commit.empty() && commit != nullptr) {
    flags.report.commit = commit;
  }
  LeftOut left_out("attnlab profile");
  absl::Status s;
  {
    const Interrupt interrupt;
    s = ProfileAll(flags, &flags.report, &left_out, streams);
  }
  left_out.Print(streams.err);
  const std::vector<ProfileRow>& rows = flags.report.rows;
  if (s.ok() && rows.empty() && !Interrupt::Pressed()) {
    s = left_out.blame().Flags()
            ? absl::InvalidArgumentError("no kernel takes these flags")
            : absl::UnimplementedError("no kernel here does any of these problems on a GPU");
  }
  if (!rows.empty()) {
    const Json profile = ProfileJson(flags.report);
    if (flags.json) {
      streams.out << Dump(profile);
    } else {
      PrintProfile(flags.report, streams);
    }
    if (!flags.html.empty()) s.Update(WriteHtml(flags.html, profile));
  }
  if (!s.ok()) {
    const int failed = Fail(streams, "profile", s);
    // Not the caller's to put right by other flags.
    return absl::IsPermissionDenied(s) ? kImpossible : failed;
  }
  if (Interrupt::Pressed()) {
    streams.err << "attnlab profile: interrupted; "
                << (rows.empty() ? "nothing was done by then\n"
                                 : "what was done by then is printed\n");
    return kInterrupted;
  }
  for (const ProfileRow& row : rows) {
    if (!row.profile.status.ok() || row.verdict == "WRONG") return kFailed;
  }
  return kOk;
}

}  // namespace attnlab::command
