#include "tools/command/profile_flags.h"

#include <algorithm>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "profiling/report/report_file.h"
#include "tools/lib/files.h"

namespace attnlab::command {
namespace {

// Flags that say which calls are measured and how: useless with --list_metrics and --from.
constexpr absl::string_view kOfRuns[] = {"problem",     "preset",   "dtype",    "kernel", "config",
                                         "repetitions", "ceilings", "seed",     "lse",    "verify",
                                         "commit",      "gpus",     "parallel", "trace"};
// Flags of counters, which --gpus does not read.
constexpr absl::string_view kOfCounters[] = {"config", "repetitions", "ceilings", "lse",
                                             "verify", "commit",      "device",   "set",
                                             "metric", "json",        "html"};
constexpr absl::string_view kOfListing[] = {"chip", "match"};
// Flags of measurements and of --list_metrics.
constexpr absl::string_view kOfBoth[] = {"device", "set", "metric", "json"};

// The first of `names` that was given, or "".
template <typename Names>
absl::string_view Given(const ArgumentParser& parser, const Names& names) {
  const auto found = std::find_if(std::begin(names), std::end(names),
                                  [&](absl::string_view name) { return parser.Given(name); });
  return found == std::end(names) ? "" : *found;
}

absl::Status NotWith(absl::string_view flag, absl::string_view other, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " does not go with ", other, why));
}

}  // namespace

ArgumentParser MakeProfileParser(ProfileFlags* f) {
  ArgumentParser parser(
      "attnlab profile",
      "Counts what kernels read from and write to HBM, by the GPU's own counters, beside their own "
      "model and\nthe least that any kernel moves, and compares their speed with the GPU's "
      "limits.");
  parser.AddGroup("What");
  AddProblemFlags(&parser, &f->problem);
  parser.AddString("kernel", "NAMES", &f->kernel,
                   "all GPU kernels that do the problem, or names, as in a,b [all]");
  parser.AddString("device", "D", &f->device, "cuda:N [cuda:0]");
  parser.AddStrings("config", "LINE", &f->configs,
                    "key=value,… with lists and ranges, a row each, or default; repeatable");
  parser.AddGroup("Counters");
  // The names of profiling::Sets(), which is not linked without a toolkit.
  parser.AddString("set", "NAME", &f->set,
                   "counters: traffic, l2, compute, stalls, all, or none [traffic]");
  parser.AddStrings("metric", "NAME", &f->metrics,
                    "metric of CUPTI, such as sm__warps_launched.sum; repeatable");
  parser.AddBool("list_metrics", &f->list_metrics,
                 "run nothing; list what --set and --metric count [false]");
  parser.AddString("chip", "NAME", &f->chip,
                   "with --list_metrics: chip, such as GH100 [the GPU's]");
  parser.AddString("match", "TEXT", &f->match,
                   "with --list_metrics: metrics with this text in their name");
  parser.AddGroup("On several GPUs at once: what each does when, in place of counters");
  parser.AddInteger("gpus", "N", &f->gpus, 1, 1024, "divide the problem among GPUs 0 to N - 1");
  parser.AddString("parallel", "WAY", &f->parallel,
                   "how: zigzag, ring, alltoall, splitkv or heads [zigzag]");
  parser.AddString("trace", "FILE", &f->trace,
                   "write a trace that ui.perfetto.dev and chrome://tracing show");
  parser.AddGroup("How");
  parser.AddInteger("repetitions", "N", &f->repetitions, 1, 1000,
                    "repetitions; results are their medians [3]");
  parser.AddString("ceilings", "HOW", &f->ceilings,
                   "kept (measured once per GPU and driver), anew, none [kept]");
  parser.AddInteger("seed", "N", &f->seed, 0, INT64_MAX, "seed of the inputs [0]");
  parser.AddBool("lse", &f->lse, "kernels write the log-sum-exp, too [false]", kLseHint);
  parser.AddBool("verify", &f->verify, "check each kernel against the oracle, too [true]");
  parser.AddGroup("Results");
  parser.AddString("commit", "ID", &f->commit, "commit that results name [$ATTNLAB_COMMIT]");
  AddJsonFlag(&parser, &f->formats);
  parser.AddString("html", "FILE", &f->html, "write a report for browsers, one file");
  parser.AddString("from", "FILE", &f->from,
                   "run nothing; make --html of a profile that --json printed");
  parser.AddSection("The one-line form of a problem", kProblemHelp);
  parser.AddSection(
      "Columns",
      "time           of a call, from the start of its first kernel to the end of its last\n"
      "TFLOP/s        FLOPs of the two matrix products that the mask leaves, over the time\n"
      "HBM read       bytes read from HBM by a call that begins with an empty L2\n"
      "  model        that many times what the kernel's own model says; in brackets where it "
      "guesses\n"
      "  least        that many times what any kernel must read\n"
      "HBM written    the same for writes; \"in L2\": much of it had not gone to HBM yet\n"
      "roofline       share of the FLOP/s that the ceilings allow with the bytes that it moved\n"
      "least roofline the same with the bytes that any kernel must move: what is left to gain\n"
      "range_duration in the second table: the counted call with its launch, at the clock that\n"
      "               counters run with, so longer than the time");
  parser.AddSection("Examples",
                    "attnlab profile --problem=llama3-8b-prefill-4k\n"
                    "attnlab profile --kernel=fa2 --problem=gpt2,dtype=bf16 --set=all\n"
                    "attnlab profile --kernel=fa2 --problem=gpt2,dtype=bf16 --set=none "
                    "--metric=sm__warps_launched.sum\n"
                    "attnlab profile --problem='hq=8,sq=1024..16384,d=64,dtype=bf16' --json\n"
                    "attnlab profile --problem=llama3-8b-prefill-4k --html=profile.html\n"
                    "attnlab profile --from=profile.json --html=profile.html\n"
                    "attnlab profile --gpus=2 --problem=hq=16,sq=32768,d=128,mask=causal "
                    "--trace=ring.json\n"
                    "attnlab profile --list_metrics --chip=GH100\n"
                    "attnlab profile --list_metrics --chip=GH100 --set=l2 --metric="
                    "sm__warps_launched.sum\n"
                    "attnlab profile --list_metrics --chip=GH100 --match=dram__bytes");
  parser.AddSection(
      "Environment",
      "ATTNLAB_CUPTI         the file of CUPTI, the toolkit's library that reads the counters\n"
      "CUDA_HOME, CUDA_PATH  the directory of a toolkit that has it\n"
      "XDG_CACHE_HOME, HOME  ceilings are kept in $XDG_CACHE_HOME/attnlab or ~/.cache/attnlab\n"
      "ATTNLAB_COMMIT        the default of --commit");
  return parser;
}

absl::Status CheckTogether(const ArgumentParser& parser, const ProfileFlags& flags) {
  for (auto metric = flags.metrics.begin(); metric != flags.metrics.end(); ++metric) {
    if (std::find(flags.metrics.begin(), metric, *metric) != metric) {
      return absl::InvalidArgumentError(absl::StrCat("--metric: ", *metric, " is given twice"));
    }
  }
  if (flags.html == "-") {
    return absl::InvalidArgumentError("--html: - is no name of a file; the page is not printed");
  }
  if (!flags.from.empty()) {
    if (flags.list_metrics) return NotWith("list_metrics", "--from", "");
    for (const absl::string_view given :
         {Given(parser, kOfRuns), Given(parser, kOfBoth), Given(parser, kOfListing)}) {
      if (!given.empty()) return NotWith(given, "--from", ", with which nothing is measured");
    }
    return flags.html.empty()
               ? absl::InvalidArgumentError("--from: --html=FILE says what to make of it")
               : absl::OkStatus();
  }
  for (const char* flag : {"parallel", "trace"}) {
    if (flags.gpus == 0 && parser.Given(flag)) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " goes with --gpus alone"));
    }
  }
  if (flags.gpus > 0 && !flags.list_metrics) {
    const absl::string_view given = Given(parser, kOfCounters);
    if (!given.empty()) return NotWith(given, "--gpus", ", which reads no counters");
  }
  if (!flags.list_metrics) {
    const absl::string_view given = Given(parser, kOfListing);
    return given.empty() ? absl::OkStatus()
                         : absl::InvalidArgumentError(
                               absl::StrCat("--", given, " goes with --list_metrics alone"));
  }
  absl::string_view given = Given(parser, kOfRuns);
  if (given.empty() && parser.Given("html")) given = "html";
  if (!given.empty()) return NotWith(given, "--list_metrics", ", which measures nothing");
  if (!flags.formats.json.empty() && flags.formats.json != "-") {
    return NotWith("json=FILE", "--list_metrics", "; --json > FILE writes the list");
  }
  if (parser.Given("chip") && parser.Given("device")) {
    return NotWith("chip", "--device", ": either the chip or the GPU that has it");
  }
  if (parser.Given("match")) {
    for (const char* other : {"set", "metric"}) {
      if (parser.Given(other))
        return NotWith(other, "--match", ", which looks through all metrics");
    }
  }
  return absl::OkStatus();
}

absl::Status WriteReportOfFile(const ProfileFlags& flags) {
  const std::string from = ResolvePath(flags.from), html = ResolvePath(flags.html);
  if (SameFile(from, html)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--html: ", flags.html, " is the file of --from, which it would replace"));
  }
  const auto profile = profiling::ReadProfile(from);
  if (!profile.ok()) return OfFlag(profile.status(), "--from");
  return OfFlag(profiling::WriteHtmlReport(*profile, html), "--html");
}

absl::Status OfFlag(const absl::Status& status, absl::string_view flag) {
  const absl::string_view message = status.message();
  if (status.ok() || absl::StartsWith(message, absl::StrCat(flag, ":"))) return status;
  // "device: there is no cuda:3" names the flag already, without its dashes.
  const bool named = absl::StartsWith(absl::StrCat("--", message), absl::StrCat(flag, ":"));
  return absl::Status(status.code(),
                      named ? absl::StrCat("--", message) : absl::StrCat(flag, ": ", message));
}

}  // namespace attnlab::command
