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

// What says which calls are measured and how, and so nothing where none are.
constexpr absl::string_view kOfRuns[] = {"problem", "preset",      "dtype",    "kernel",
                                         "config",  "repetitions", "ceilings", "seed",
                                         "lse",     "verify",      "commit"};
constexpr absl::string_view kOfListing[] = {"chip", "match"};
// Of counters, for runs and for listing them.
constexpr absl::string_view kOfBoth[] = {"device", "set", "metric", "json"};

// The first of the flags that was given, or "".
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
  // The names are those of profiling::Sets(), which is not there without a toolkit.
  parser.AddString("set", "NAME", &f->set,
                   "Which: traffic, l2, compute, stalls, all, or none. traffic is the default.");
  parser.AddStrings(
      "metric", "NAME", &f->metrics,
      "One of CUPTI's, besides the set, such as sm__warps_launched.sum, in CUPTI's own unit "
      "(nanoseconds for times). Repeatable.");
  parser.AddBool("list_metrics", &f->list_metrics,
                 "Run nothing; print what the sets are made of on this GPU, and in how many passes "
                 "over a kernel. With --set or --metric: what a run with these counts. Without a "
                 "GPU it is of GH100, or of --chip.");
  parser.AddString("chip", "NAME", &f->chip,
                   "With --list_metrics: of a chip, in place of the GPU's: GH100 say.");
  parser.AddString("match", "TEXT", &f->match,
                   "With --list_metrics: all metrics with this in their name, in any case.");
  parser.AddGroup("How");
  parser.AddInteger("repetitions", "N", &f->repetitions, 1, 1000, "Of which medians are taken. 3.");
  parser.AddString("ceilings", "HOW", &f->ceilings,
                   "kept (the default: measured once a GPU and driver), anew, or none.");
  parser.AddInteger("seed", "N", &f->seed, 0, INT64_MAX, "The same seed, the same inputs. 0.");
  parser.AddBool("lse", &f->lse, "Have kernels write the log-sum-exp, too.", kLseHint);
  parser.AddBool("verify", &f->verify, "Verify each kernel, too: true by default.");
  parser.AddGroup("Results");
  parser.AddString("commit", "ID", &f->commit,
                   "Goes into every JSON row; by default $ATTNLAB_COMMIT.");
  AddJsonFlag(&parser, &f->formats);
  parser.AddString("html", "FILE", &f->html,
                   "Write a report that a browser shows, one file, no network.");
  parser.AddString("from", "FILE", &f->from,
                   "Run nothing; --html is to be the report of a profile that --json printed. "
                   "Needs no GPU.");
  parser.AddSection("The one-line form of a problem", kProblemHelp);
  parser.AddSection(
      "Columns",
      "time           of a call, from the beginning of its first kernel to the end of its last\n"
      "TFLOP/s        the two matrix products over what the mask lets through, over the time\n"
      "HBM read       bytes that were read from HBM, of a call that begins with an empty L2\n"
      "  model        times what the kernel's own model says; \"of 1.00–4.00x\": it cannot tell, "
      "and\n"
      "               says so many times that\n"
      "  least        times what any kernel must read\n"
      "HBM written    the same; up to an L2 of it may not have gone there yet, and where all of "
      "it\n"
      "               fits and much is missing, there is \"in L2\" instead of a ratio\n"
      "roofline       of the FLOP/s that the card's ceilings allow with the bytes that it moved\n"
      "least roofline the same with those that any kernel must move: what is left to gain\n"
      "range_duration in the second table: of the counted call from outside, launching and all, "
      "at\n"
      "               the clock that counters run with; so it is longer than the time");
  parser.AddSection("Examples",
                    "attnlab profile --problem=llama3-8b-prefill-4k\n"
                    "attnlab profile --kernel=fa2 --problem=gpt2,dtype=bf16 --set=all\n"
                    "attnlab profile --kernel=fa2 --problem=gpt2,dtype=bf16 --set=none "
                    "--metric=sm__warps_launched.sum\n"
                    "attnlab profile --problem='hq=8,sq=1024..16384,d=64,dtype=bf16' --json\n"
                    "attnlab profile --problem=llama3-8b-prefill-4k --html=profile.html\n"
                    "attnlab profile --from=profile.json --html=profile.html\n"
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
  // "device: there is no cuda:3" is of --device already.
  const bool named = absl::StartsWith(absl::StrCat("--", message), absl::StrCat(flag, ":"));
  return absl::Status(status.code(),
                      named ? absl::StrCat("--", message) : absl::StrCat(flag, ": ", message));
}

}  // namespace attnlab::command
