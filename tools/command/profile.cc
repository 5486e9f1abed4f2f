// attnlab profile: bytes that kernels move and their share of the roofline, by the GPU's counters.
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
#include "attention/cuda/machine.h"
#include "attention/oracle/verify.h"
#include "profiling/ceilings.h"
#include "profiling/ceilings_cache.h"
#include "profiling/chip.h"
#include "profiling/counters.h"
#include "profiling/kernel_profile.h"
#include "profiling/quantities.h"
#include "profiling/report/report_file.h"
#include "tools/command/bench_plans.h"
#include "tools/command/cache_directory.h"
#include "tools/command/command.h"
#include "tools/command/list_metrics.h"
#include "tools/command/profile_flags.h"
#include "tools/command/profile_ranks.h"
#include "tools/command/profile_report.h"
#include "tools/command/selection.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/files.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

// The chip whose metrics are listed if there is no GPU.
constexpr char kUsualChip[] = "GH100";

bool OnGpus(const Kernel* kernel) { return kernel->traits().device == DeviceKind::kCuda; }

// The GPU kernels to measure, and their configurations.
absl::StatusOr<BenchSelection> SelectionOf(const ProfileFlags& f) {
  BenchSelection selection;
  selection.names = f.kernel;
  selection.device = f.device;
  selection.seed = static_cast<uint64_t>(f.seed);
  const absl::StatusOr<std::vector<const Kernel*>> kernels = KernelsOf(f.kernel);
  if (!kernels.ok()) return kernels.status();
  for (const Kernel* kernel : *kernels) {
    if (OnGpus(kernel)) {
      selection.kernels.push_back(kernel);
    } else if (IsNamed(*kernel, f.kernel)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--kernel: ", kernel->traits().name,
          " runs on the CPU, which has no counters; `attnlab list` has the kernels of GPUs"));
    }
  }
  if (selection.kernels.empty()) {
    return absl::UnimplementedError("this program links no kernel of GPUs");
  }
  absl::StatusOr<std::vector<LaunchConfig>> configs = ConfigsOf(f.configs, selection.kernels);
  if (!configs.ok()) return configs.status();
  selection.configs = *std::move(configs);
  return selection;
}

// Checks the kernel against the oracle and sets verdict and remark.
void Judge(const ProfileFlags& f, ProfileRow* row) {
  row->verdict = "not checked";
  if (!f.verify || !row->profile.status.ok() || Interrupt::Pressed()) return;
  oracle::VerifyOptions options;
  options.inputs.seed = static_cast<uint64_t>(f.seed);
  options.reruns = 0;  // the conformance suite checks that
  const absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(row->profile.plan, options);
  if (absl::IsCancelled(result.status())) return;
  if (absl::IsResourceExhausted(result.status())) {
    row->remark = std::string(result.status().message());
  } else if (!result.ok() || !result->passed) {
    row->verdict = "WRONG";
    row->remark = result.ok() ? result->message : std::string(result.status().message());
  } else {
    row->verdict = "ok";
  }
}

absl::Status CheckMetrics(const ProfileFlags& f) {
  const absl::Span<const absl::string_view> sets = profiling::Sets();
  if (f.set != "none" && std::find(sets.begin(), sets.end(), f.set) == sets.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set: ", f.set, " is not one of ", absl::StrJoin(sets, ", "), ", none"));
  }
  for (const std::string& metric : f.metrics) {
    for (const profiling::Quantity& quantity : profiling::Quantities()) {
      if (metric != quantity.name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--metric: ", metric, " is a quantity of --set=", quantity.set,
                       "; a metric is one of CUPTI's, such as dram__bytes_read.sum"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const ProfileFlags& f) {
  if (f.ceilings != "kept" && f.ceilings != "anew" && f.ceilings != "none") {
    return absl::InvalidArgumentError(
        absl::StrCat("--ceilings: ", f.ceilings, " is not one of kept, anew, none"));
  }
  const absl::StatusOr<Device> device = ParseDevice(f.device);
  if (!device.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: \"", f.device, "\" is not one of cuda, cuda:N"));
  }
  if (device->kind != DeviceKind::kCuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: ", f.device, " has no counters; cuda:0 is the first GPU"));
  }
  if (absl::Status s = CheckMetrics(f); !s.ok()) return s;
  if (f.html.empty()) return absl::OkStatus();
  // A file that cannot be written is an error now, not after the measurement.
  return OfFlag(AtomicFile::Create(ResolvePath(f.html)).status(), "--html");
}

// The GPU of --device, which CheckFlags() has checked.
absl::StatusOr<DeviceInfo> GpuOf(const ProfileFlags& f) {
  absl::StatusOr<DeviceInfo> gpu = InfoOf(*ParseDevice(f.device));
  // InvalidArgument is about $ATTNLAB_COMPUTE_CAPABILITY.
  if (gpu.ok() || absl::IsInvalidArgument(gpu.status())) return gpu;
  const absl::Status s = OfFlag(gpu.status(), "--device");
  return absl::UnavailableError(absl::StrCat(
      s.message(), "; `attnlab profile --list_metrics --chip=", kUsualChip, "` needs none"));
}

// The name of the GPU's chip. Unimplemented if CUPTI is older than the GPU and does not know it.
absl::StatusOr<std::string> KnownChipOf(int ordinal) {
  absl::StatusOr<std::string> chip = profiling::ChipOf(ordinal);
  if (!chip.ok()) return chip;
  const absl::StatusOr<std::vector<std::string>> names = profiling::Chip::Names();
  if (!names.ok()) return names.status();
  if (std::find(names->begin(), names->end(), *chip) != names->end()) return chip;
  return absl::UnimplementedError(
      absl::StrCat("--device: the chip of cuda:", ordinal, ", ", *chip,
                   ", is not one that this CUPTI has metrics of: ", absl::StrJoin(*names, ", "),
                   "; that of a newer toolkit may"));
}

absl::Status List(const ProfileFlags& f, const ArgumentParser& parser, const Streams& streams) {
  std::string name = f.chip, remark;
  if (name.empty()) {
    const absl::StatusOr<DeviceInfo> gpu = GpuOf(f);
    if (gpu.ok() || parser.Given("device")) {
      if (!gpu.ok()) return gpu.status();
      const absl::StatusOr<std::string> chip = KnownChipOf(gpu->device.ordinal);
      if (!chip.ok()) return chip.status();
      name = *chip;
    } else {
      name = kUsualChip;
      remark = absl::StrCat("there is no GPU to ask, so these are of ", kUsualChip,
                            "; --chip=NAME has those of another");
    }
  }
  const absl::StatusOr<profiling::Chip> chip = profiling::Chip::Open(name);
  if (!chip.ok()) return OfFlag(chip.status(), "--chip");
  if (!remark.empty()) streams.err << "attnlab profile: " << remark << "\n";
  const bool json = !f.formats.json.empty();
  if (!f.match.empty()) return ListMatching(*chip, f.match, json, streams);
  if (!parser.Given("set") && !parser.Given("metric")) return ListSets(*chip, json, streams);
  if (f.set == "none" && f.metrics.empty()) {
    return absl::InvalidArgumentError("--set: none, and no --metric: there is nothing to list");
  }
  return OfFlag(ListSelected(*chip, f.set == "none" ? "" : f.set, f.metrics, json, streams),
                "--metric");
}

// PermissionDenied would mean exit code 2, bad flags. Flags cannot fix missing access to counters.
absl::Status OfCounting(const absl::Status& s) {
  return absl::IsPermissionDenied(s) ? absl::UnavailableError(s.message()) : s;
}

// Checks that the chip can count everything requested, before the long part of the work.
absl::Status CheckCounters(const ProfileFlags& f, const std::string& chip_name, int ordinal) {
  if (f.set == "none" && f.metrics.empty()) return absl::OkStatus();
  const absl::StatusOr<profiling::Chip> chip = profiling::Chip::Open(chip_name);
  if (!chip.ok()) return OfFlag(chip.status(), "--device");
  if (absl::Status s = CheckCountable(*chip, f.metrics); !s.ok()) return OfFlag(s, "--metric");
  return OfCounting(
      profiling::Counters::Open(ordinal, f.set == "none" ? "" : f.set, f.metrics).status());
}

absl::Status MeasureOrRead(const ProfileFlags& f, int ordinal, Progress* progress,
                           ProfileReport* report, const Streams& streams) {
  if (f.ceilings == "none") return absl::OkStatus();
  const absl::StatusOr<profiling::CeilingsKey> key = profiling::CeilingsKeyOf(ordinal);
  if (!key.ok()) return key.status();
  const CacheDirectory directory = FindCacheDirectory("the ceilings");
  const absl::StatusOr<profiling::KeptCeilings> kept =
      profiling::KeepCeilings(directory.path, *key, f.ceilings == "anew", [&] {
        progress->Show(0, "measuring the ceilings");
        return profiling::MeasureCeilings(ordinal);
      });
  if (!kept.ok()) return kept.status();
  progress->Clear();
  if (!directory.remark.empty()) streams.err << "attnlab profile: " << directory.remark << "\n";
  // Without a directory, its remark already says why the ceilings are not kept.
  if (!kept->remark.empty() && !(directory.path.empty() && !directory.remark.empty())) {
    streams.err << "attnlab profile: " << kept->remark << "\n";
  }
  report->ceilings = kept->ceilings;
  return absl::OkStatus();
}

// Profiles the plans of one problem and checks the results.
absl::Status ProfileOne(const ProfileFlags& f, const std::vector<Plan>& plans,
                        const profiling::ProfileOptions& options, ProfileReport* report,
                        LeftOut* left_out) {
  absl::StatusOr<std::vector<profiling::KernelProfile>> profiles =
      profiling::ProfileKernels(plans, options);
  if (absl::IsResourceExhausted(profiles.status())) {
    left_out->Add(profiles.status(), plans[0].problem.ToString());
    return absl::OkStatus();
  }
  if (absl::IsCancelled(profiles.status())) return absl::OkStatus();
  if (!profiles.ok()) return OfCounting(profiles.status());
  for (profiling::KernelProfile& profile : *profiles) {
    if (absl::IsCancelled(profile.status)) continue;
    options.progress(absl::StrCat("verifying ", profile.plan.kernel->traits().name));
    report->rows.push_back({std::move(profile), "", ""});
    Judge(f, &report->rows.back());
  }
  return absl::OkStatus();
}

absl::Status ProfileAll(const ProfileFlags& f, ProfileReport* report, LeftOut* left_out,
                        const Streams& streams) {
  const absl::StatusOr<BenchSelection> selection = SelectionOf(f);
  if (!selection.ok()) return selection.status();
  const absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f.problem);
  if (!problems.ok()) return problems.status();
  if (problems->empty()) {
    return absl::InvalidArgumentError(
        "--problem: none is given; llama3-8b-prefill-4k is one of those that `attnlab list` has");
  }
  const absl::StatusOr<DeviceInfo> gpu = GpuOf(f);
  if (!gpu.ok()) return gpu.status();
  const int ordinal = gpu->device.ordinal;
  const absl::StatusOr<std::string> chip = KnownChipOf(ordinal);
  if (!chip.ok()) return OfCounting(chip.status());
  report->chip = *chip;
  absl::Status s = CheckCounters(f, *chip, ordinal);
  if (!s.ok()) return s;
  std::vector<std::vector<Plan>> plans;  // one entry per problem
  for (const AttentionProblem& problem : *problems) {
    absl::StatusOr<std::vector<Plan>> some = PlansOf(problem, *selection, left_out);
    if (!some.ok()) return some.status();
    if (!some->empty()) plans.push_back(*std::move(some));
  }
  if (plans.empty()) return absl::OkStatus();

  Progress progress(stderr, static_cast<int64_t>(plans.size()));
  if (s = MeasureOrRead(f, ordinal, &progress, report, streams); !s.ok()) return s;
  profiling::ProfileOptions options;
  options.seed = selection->seed;
  options.with_lse = report->lse;
  options.set = f.set == "none" ? "" : f.set;
  options.metrics = f.metrics;
  options.repetitions = report->repetitions;
  options.stopped = Interrupt::Pressed;
  for (size_t i = 0; i < plans.size() && !Interrupt::Pressed(); ++i) {
    options.progress = [&](absl::string_view what) {
      progress.Show(static_cast<int64_t>(i),
                    absl::StrCat(what, ": ", plans[i][0].problem.ToString()));
    };
    if (s = ProfileOne(f, plans[i], options, report, left_out); !s.ok()) return s;
  }
  return absl::OkStatus();
}

ProfileReport EmptyReport(const ProfileFlags& f) {
  ProfileReport report;
  report.commit = f.commit.empty() ? Commit() : f.commit;
  report.seed = f.seed;
  report.repetitions = f.repetitions;
  report.lse = f.lse;
  return report;
}

}  // namespace

int Profile(const Arguments& arguments, const Streams& streams) {
  ProfileFlags flags;
  ArgumentParser parser = MakeProfileParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "profile", arguments, streams, &code)) return code;
  absl::Status s = CheckTogether(parser, flags);
  if (s.ok() && !flags.from.empty()) {
    s = WriteReportOfFile(flags);
    return s.ok() ? kOk : Fail(streams, "profile", s);
  }
  if (s.ok() && flags.gpus > 0) {
    s = ProfileRanks(flags, streams);
    return s.ok() ? kOk : Fail(streams, "profile", s);
  }
  if (s.ok()) s = CheckFlags(flags);
  if (!s.ok()) return Fail(streams, "profile", s);
  if (flags.list_metrics) {
    const StopOnCtrlC stop("profile");
    s = List(flags, parser, streams);
    if (absl::IsCancelled(s)) return Interrupted(streams, "profile", false, "listed");
    return s.ok() ? kOk : Fail(streams, "profile", OfCounting(s));
  }
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(flags.formats);
  if (!files.ok()) return Fail(streams, "profile", files.status());
  ProfileReport report = EmptyReport(flags);
  LeftOut left_out("attnlab profile");
  {
    const StopOnCtrlC stop("profile");
    s = ProfileAll(flags, &report, &left_out, streams);
  }
  left_out.Print(streams.err);
  const std::vector<ProfileRow>& rows = report.rows;
  if (s.ok() && rows.empty() && !Interrupt::Pressed()) {
    s = left_out.blame().NothingDone(" on a GPU");
  }
  if (!rows.empty()) {
    const Json profile = ProfileJson(report);
    s.Update(files->Write(profile, {}, streams));
    if (flags.formats.Tables()) PrintProfile(report, streams);
    if (!flags.html.empty()) {
      s.Update(OfFlag(profiling::WriteHtmlReport(profile, ResolvePath(flags.html)), "--html"));
    }
  }
  if (!s.ok()) return Fail(streams, "profile", s);
  if (Interrupt::Pressed()) return Interrupted(streams, "profile", rows.empty());
  for (const ProfileRow& row : rows) {
    if (!row.profile.status.ok() || row.verdict == "WRONG") return kFailed;
  }
  return kOk;
}

}  // namespace attnlab::command
