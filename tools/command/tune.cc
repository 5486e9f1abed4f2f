// attnlab tune: finds the fastest configuration of a kernel, and keeps it.
#include "attention/tune/tune.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/core/registry.h"
#include "tools/command/cache_directory.h"
#include "tools/command/command.h"
#include "tools/command/machine.h"
#include "tools/command/process_trials.h"
#include "tools/command/selection.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/files.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

struct Flags {
  ProblemFlags problem;
  std::string kernel, device = "auto", cache;
  double seconds = 30;
  bool anew = false;
  Formats formats;
};

ArgumentParser MakeParser(Flags* f) {
  ArgumentParser parser(
      "attnlab tune",
      "Finds the fastest configuration of a kernel for a class of problems on this machine, and "
      "keeps it in\na file.");
  parser.AddGroup("What");
  AddProblemFlags(&parser, &f->problem);
  parser.AddString("kernel", "NAMES", &f->kernel,
                   "all, or names, as in a,b [the default kernel of each problem]");
  parser.AddString("device", "D", &f->device, "auto, cpu, or cuda:N [auto]");
  parser.AddGroup("How");
  parser.AddNumber("seconds", "X", &f->seconds, 0.1, 86400,
                   "time for each class of problems and kernel, seconds [30]");
  parser.AddBool("anew", &f->anew, "tune even if the file has a choice [false]");
  parser.AddGroup("Results");
  parser.AddString("cache", "FILE", &f->cache,
                   "where choices are kept [tuning.json in $XDG_CACHE_HOME/attnlab or "
                   "~/.cache/attnlab]");
  AddJsonFlag(&parser, &f->formats);
  AddCsvFlag(&parser, &f->formats);
  parser.AddSection(
      "How it chooses",
      "Problems are tuned by class: batch, KV heads, lengths and window are rounded to a power of\n"
      "two. Each candidate runs in processes of its own. It is checked against the oracle, then\n"
      "timed in turn with the others. One of them replaces the kernel's own choice only if it is\n"
      "faster beyond the noise and the spread of both.");
  parser.AddSection("The one-line form of a problem", kProblemHelp);
  parser.AddSection("Examples",
                    "attnlab tune --problem=hq=8,sq=512..4096,d=64,dtype=fp32,mask=causal\n"
                    "attnlab tune --preset=gpt2 --kernel=fa2 --seconds=60");
  return parser;
}

struct Results {
  std::vector<Json> json;
  std::vector<std::vector<Table::Cell>> cells;
  std::vector<std::string> remarks;
  bool any_kept = false, cannot_keep = false, interrupted = false;
};

void Add(const tune::Tuned& tuned, const DeviceInfo& device, Results* results) {
  const tune::Choice& choice = tuned.choice;
  const double speed_up = choice.default_seconds / choice.seconds;
  const std::string line = tuned.problem.ToString(), config = choice.config.ToString();
  results->cells.push_back({line, tuned.kernel, config.empty() ? "its own" : config,
                            Seconds(choice.seconds), Seconds(choice.default_seconds),
                            absl::StrCat(Digits(speed_up), "x"),
                            tuned.from_cache ? "kept before"
                            : tuned.kept     ? "kept now"
                                             : "not kept"});
  results->any_kept |= tuned.kept;
  results->cannot_keep |= !tuned.kept && tuned.untried == 0;
  Json rejected = Json::array();
  for (const tune::Rejected& r : tuned.rejected) {
    rejected.push_back({{"config", r.config.ToString()}, {"reason", r.reason}});
    results->remarks.push_back(
        absl::StrCat(tuned.kernel, " ", r.config.ToString(), " is out: ", r.reason));
  }
  if (tuned.untried > 0) {
    results->remarks.push_back(absl::StrCat(line, ": the time was over before ", tuned.untried,
                                            " of ", Counted(tuned.candidates, "candidate"),
                                            ", so the choice is not kept; give --seconds more"));
  }
  if (!tuned.remark.empty()) results->remarks.push_back(tuned.remark);
  results->json.push_back({{"problem", line},
                           {"kernel", tuned.kernel},
                           {"config", config},
                           {"machine", MachineJson(device)},
                           {"seconds", choice.seconds},
                           {"default_seconds", choice.default_seconds},
                           {"speed_up", speed_up},
                           {"from_cache", tuned.from_cache},
                           {"kept", tuned.kept},
                           {"candidates", tuned.candidates},
                           {"untried", tuned.untried},
                           {"rejected", rejected}});
  if (!tuned.from_cache) results->json.back()["date"] = UtcNow();
}

// "": the default kernel.
absl::StatusOr<std::vector<std::string>> NamesOf(const std::string& kernels) {
  if (kernels.empty()) return std::vector<std::string>{""};
  const absl::StatusOr<std::vector<const Kernel*>> found = KernelsOf(kernels);
  if (!found.ok()) return found.status();
  std::vector<std::string> names;
  for (const Kernel* kernel : *found) names.push_back(kernel->traits().name);
  return names;
}

absl::StatusOr<DeviceInfo> DeviceToTune(const Flags& f, const AttentionProblem& problem,
                                        const std::string& kernel) {
  if (kernel.empty()) return DeviceOf(f.device, problem, Registry::Global().All(), {});
  const absl::StatusOr<const Kernel*> found = Registry::Global().Find(kernel);
  if (!found.ok()) return found.status();
  return DeviceFor(f.device, **found);
}

absl::Status TuneAll(const Flags& f, const tune::Cache& cache, Results* results) {
  absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(f.problem);
  if (!problems.ok()) return problems.status();
  if (problems->empty()) {
    return absl::InvalidArgumentError("give --problem or --preset: what shall be tuned?");
  }
  const absl::StatusOr<std::vector<std::string>> names = NamesOf(f.kernel);
  if (!names.ok()) return names.status();
  ProcessTrials trials("/proc/self/exe");
  Progress progress(stderr, static_cast<int64_t>(problems->size() * names->size()));
  int64_t done = 0;
  Blame blame;
  const auto leave_out = [&](const absl::Status& why) {
    blame.Add(why);
    results->remarks.push_back(std::string(why.message()));
  };
  for (const AttentionProblem& problem : *problems) {
    for (const std::string& name : *names) {
      const absl::StatusOr<DeviceInfo> device = DeviceToTune(f, problem, name);
      if (!device.ok()) {
        if (!LeavesOut(f.device, device.status())) return device.status();
        ++done;
        leave_out(device.status());
        continue;
      }
      tune::Options options;
      options.kernel = name;
      options.seconds = f.seconds;
      options.anew = f.anew;
      options.stopped = Interrupt::Pressed;
      options.progress = [&](absl::string_view what, double left) {
        const auto others =
            static_cast<double>(problems->size() * names->size()) - 1 - static_cast<double>(done);
        progress.Show(done, absl::StrCat(what, ": ", problem.ToString()),
                      left + others * f.seconds);
      };
      const absl::StatusOr<tune::Tuned> tuned =
          tune::GetOrTune(problem, *device, options, cache, trials);
      results->interrupted = Interrupt::Pressed();
      if (results->interrupted) return absl::OkStatus();
      ++done;
      if (tuned.ok()) {
        Add(*tuned, *device, results);
      } else if (absl::IsInternal(tuned.status())) {
        return tuned.status();
      } else {
        leave_out(tuned.status());
      }
    }
  }
  return results->json.empty() ? blame.NothingDone() : absl::OkStatus();
}

}  // namespace

int Tune(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "tune", arguments, streams, &code)) return code;
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(flags.formats);
  if (!files.ok()) return Fail(streams, "tune", files.status());
  Results results;
  std::string path = flags.cache;
  if (path.empty()) {
    const CacheDirectory directory = FindCacheDirectory("tuned choices");
    if (directory.path.empty()) {
      return Fail(streams, "tune",
                  absl::InvalidArgumentError(
                      "there is no directory to keep choices in: give --cache=FILE, or set HOME"));
    }
    if (!directory.remark.empty()) results.remarks.push_back(directory.remark);
    path = directory.path + "/tuning.json";
  }
  const tune::Cache cache(ResolvePath(path));
  absl::Status s;
  {
    const StopOnCtrlC stop("tune");
    s = TuneAll(flags, cache, &results);
  }
  for (const std::string& remark : results.remarks) {
    streams.err << "attnlab tune: " << remark << "\n";
  }
  if (!results.json.empty()) {
    const Json json = {{"command", "tune"},
                       {"attnlab", AttnlabJson()},
                       {"cache", cache.path()},
                       {"rows", results.json}};
    s.Update(files->Write(json, results.json, streams));
    if (flags.formats.Tables()) {
      Table table({{"problem (of the class)"},
                   {"kernel"},
                   {"configuration"},
                   {"time", Table::kRight},
                   {"its own choice", Table::kRight},
                   {"speed-up", Table::kRight},
                   {""}});
      for (std::vector<Table::Cell>& row : results.cells) table.AddRow(std::move(row));
      streams.out << table.Text(streams.colours, streams.columns) << "\n";
      if (results.any_kept) streams.out << "kept in " << cache.path() << "\n";
    }
  }
  if (!s.ok()) return Fail(streams, "tune", s);
  if (results.interrupted) return Interrupted(streams, "tune", results.json.empty());
  return results.cannot_keep ? kUsage : kOk;
}

}  // namespace attnlab::command
