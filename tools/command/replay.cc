// attnlab replay: what memory a paged cache takes for a trace of requests.
#include "paged/replay/replay.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/core/dtype.h"
#include "paged/page_manager.h"
#include "paged/replay/trace.h"
#include "tools/command/command.h"
#include "tools/command/replay_plot.h"
#include "tools/command/sweep.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/files.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

using paged::Load;
using paged::PageManager;
using paged::ReplayReport;
using paged::Request;

struct Flags {
  std::string trace, context = "512..2048", generated = "64..512", dtype = "bf16", plot;
  paged::TraceOptions generate;
  int64_t seed = 0;
  PageManager::Options cache;
  paged::ReplayOptions replay;
  int64_t layers = 32, kv_heads = 8, head_dim = 128;
  Formats formats;
};

constexpr const char* kGeneratorFlags[] = {"requests", "rate",          "context", "generated",
                                           "prefixes", "prefix_tokens", "seed"};

ArgumentParser MakeParser(Flags* f) {
  f->cache.pages = 8192;
  constexpr int64_t kMostPages = int64_t{1} << 30;
  ArgumentParser parser("attnlab replay",
                        "Replays a trace of requests on the page manager, and says how much memory "
                        "the pages take\nbeside contiguous preallocation. Needs no GPU.");
  parser.AddGroup("Requests");
  parser.AddString("trace", "FILE", &f->trace,
                   "CSV with the columns below [requests are generated]");
  parser.AddInteger("requests", "N", &f->generate.requests, 1, paged::kMostRequests,
                    "number of requests [1000]");
  parser.AddNumber("rate", "X", &f->generate.rate, 1e-3, 1e9,
                   "mean arrivals per second, a Poisson process [10]");
  parser.AddString("context", "N", &f->context,
                   "tokens of a prompt, N or MIN..MAX, drawn uniformly [512..2048]");
  parser.AddString("generated", "N", &f->generated,
                   "tokens that follow it, N or MIN..MAX, drawn uniformly [64..512]");
  parser.AddInteger("prefixes", "N", &f->generate.prefixes, 0, paged::kMostRequests,
                    "shared system prompts; each context begins with one, drawn uniformly [0]");
  parser.AddInteger("prefix_tokens", "N", &f->generate.prefix_tokens, 0, paged::kMostRequestTokens,
                    "tokens of each, a part of the context [0]");
  parser.AddInteger("seed", "N", &f->seed, 0, INT64_MAX, "seed of the requests [0]");
  parser.AddGroup("Cache and engine");
  parser.AddInteger("pages", "N", &f->cache.pages, 1, kMostPages, "pages of the pool [8192]");
  parser.AddInteger("page", "N", &f->cache.page, 1, 256, "tokens per page [16]");
  parser.AddInteger("host_pages", "N", &f->cache.host_pages, 0, kMostPages,
                    "pages of the host, for preempted sequences [0: they are recomputed]");
  parser.AddInteger("sequences", "N", &f->cache.sequences, 1, 1 << 20,
                    "maximum number of running and swapped sequences [256]");
  parser.AddBool("prefix_caching", &f->cache.prefix_caching,
                 "requests share the pages of equal prefixes [true]");
  parser.AddNumber("step", "X", &f->replay.step, 1e-6, 1e6,
                   "time of a step, in which each sequence generates a token, seconds [0.02]");
  parser.AddInteger("longest", "N", &f->replay.longest, 1, paged::kMostRequestTokens,
                    "tokens that contiguous preallocation reserves [those of the longest request]");
  parser.AddGroup("Bytes of a token, by default those of Llama 3 8B");
  parser.AddInteger("layers", "N", &f->layers, 1, 10000, "layers [32]");
  parser.AddInteger("hkv", "N", &f->kv_heads, 1, 10000, "KV heads [8]");
  parser.AddInteger("d", "N", &f->head_dim, 1, 10000, "head dim [128]");
  parser.AddString("dtype", "DTYPE", &f->dtype, "fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2 [bf16]");
  parser.AddGroup("Results");
  AddJsonFlag(&parser, &f->formats);
  AddCsvFlag(&parser, &f->formats);
  parser.AddString("plot", "FILE", &f->plot, "write a picture of pages over time, an SVG");
  parser.AddSection(
      "Columns of --trace",
      "arrival        seconds; rows may come in any order\n"
      "context        tokens of the prompt\n"
      "generated      tokens that follow it\n"
      "prefix         a name, may be empty or missing; equal names are equal first tokens\n"
      "prefix_tokens  how many tokens these are, if not the whole context");
  parser.AddSection("Examples",
                    "attnlab replay --prefixes=1 --prefix_tokens=512 --plot=replay.svg\n"
                    "attnlab replay --trace=requests.csv --pages=20000 --json\n"
                    "attnlab replay --rate=40 --pages=4096 --host_pages=2048 --no-prefix_caching");
  return parser;
}

absl::Status ParseRange(absl::string_view flag, const std::string& text,
                        paged::TraceOptions::Range* range) {
  const size_t dots = text.find("..");
  const absl::StatusOr<int64_t> least = ParseCount(text.substr(0, dots));
  const absl::StatusOr<int64_t> most =
      dots == std::string::npos ? least : ParseCount(text.substr(dots + 2));
  if (!least.ok() || !most.ok() || *most < *least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, ": \"", text, "\" is neither a number of tokens nor a range MIN..MAX of them"));
  }
  *range = {*least, *most};
  return absl::OkStatus();
}

// The error of a library names an option, which is a flag here.
absl::Status OfFlag(const absl::Status& s) {
  if (!absl::IsInvalidArgument(s)) return s;
  return absl::InvalidArgumentError(absl::StrCat("--", s.message()));
}

absl::StatusOr<std::vector<Request>> RequestsOf(const ArgumentParser& parser, Flags* f) {
  if (parser.Given("trace")) {
    for (const char* flag : kGeneratorFlags) {
      if (!parser.Given(flag)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " goes with requests that are generated, not with --trace"));
    }
    constexpr int64_t kMostBytes = int64_t{1} << 30;
    const absl::StatusOr<std::string> csv = ReadFile(ResolvePath(f->trace), kMostBytes);
    absl::Status s = csv.status();
    if (s.ok()) {
      absl::StatusOr<std::vector<Request>> requests = paged::ParseTrace(*csv);
      if (requests.ok()) return requests;
      s = absl::InvalidArgumentError(absl::StrCat(f->trace, ": ", requests.status().message()));
    }
    return absl::Status(s.code(), absl::StrCat("--trace: ", s.message()));
  }
  absl::Status s = ParseRange("context", f->context, &f->generate.context);
  if (s.ok()) s = ParseRange("generated", f->generated, &f->generate.generated);
  if (!s.ok()) return s;
  f->generate.seed = static_cast<uint64_t>(f->seed);
  absl::StatusOr<std::vector<Request>> requests = paged::GenerateTrace(f->generate);
  if (!requests.ok()) return OfFlag(requests.status());
  return requests;
}

// The trace in a few words.
std::string TraceTitle(const Flags& f, size_t requests) {
  const std::string count = Counted(static_cast<int64_t>(requests), "request");
  if (!f.trace.empty()) return absl::StrCat(f.trace.substr(f.trace.rfind('/') + 1), ": ", count);
  std::string title = absl::StrCat(count, ", ", f.generate.rate, " per s, context ", f.context,
                                   ", generated ", f.generated);
  if (f.generate.prefixes > 0) {
    absl::StrAppend(&title, ", ", f.generate.prefixes, " shared ",
                    f.generate.prefixes == 1 ? "prefix" : "prefixes", " of ",
                    f.generate.prefix_tokens);
  }
  return title;
}

struct Result {
  std::string title;
  ReplayReport report;
  int64_t token_bytes = 0;

  double PagedBytes(const Load& load) const {
    return report.PagedSlots(load) * static_cast<double>(token_bytes);
  }
  double ContiguousBytes(const Load& load) const {
    return report.ContiguousSlots(load) * static_cast<double>(token_bytes);
  }
};

Json LoadJson(const Result& result, const Load& load) {
  const ReplayReport& r = result.report;
  return {{"sequences", load.sequences},
          {"tokens", load.tokens},
          {"pages_in_use", load.pages},
          {"tokens_in_pages", r.PagedSlots(load) - load.empty},
          {"empty_slots", load.empty},
          {"bytes", result.PagedBytes(load)},
          {"waste", r.Waste(load)},
          {"contiguous_bytes", result.ContiguousBytes(load)},
          {"contiguous_waste", r.ContiguousWaste(load)}};
}

Json RowJson(const Flags& f, const Result& result) {
  const ReplayReport& r = result.report;
  return {{"trace", result.title},
          {"page", r.page},
          {"pages", r.pages},
          {"host_pages", f.cache.host_pages},
          {"max_sequences", f.cache.sequences},
          {"prefix_caching", f.cache.prefix_caching},
          {"step_seconds", f.replay.step},
          {"longest", r.longest},
          {"token_bytes", result.token_bytes},
          {"requests", r.requests},
          {"done", r.done},
          {"rejected", r.rejected},
          {"swapped", r.swapped},
          {"recomputed", r.recomputed},
          {"steps", r.steps},
          {"seconds", r.seconds},
          {"prompt_tokens", r.prompt_tokens},
          {"cached_tokens", r.cached_tokens},
          {"hit_rate", r.HitRate()},
          {"generated_tokens", r.generated_tokens},
          {"evictions", r.evictions},
          {"copies", r.copies},
          {"pages_to_host", r.pages_to_host},
          {"pages_from_host", r.pages_from_host},
          {"average", LoadJson(result, r.average)},
          {"most_pages", LoadJson(result, r.peak)},
          {"most_sequences", LoadJson(result, r.crowd)},
          {"times_more_sequences", r.TimesMore()}};
}

std::string Percent(double share) { return absl::StrCat(Digits(100 * share), " %"); }

void Print(const Result& result, const Streams& streams) {
  const ReplayReport& r = result.report;
  const auto share_of = [](int64_t part, int64_t all, const char* of) {
    return absl::StrCat(part, " of ", all, of);
  };
  Table counts({{"", Table::kLeft}, {"in all", Table::kRight}});
  counts.AddRow({"requests done", share_of(r.done, r.requests, "")});
  counts.AddRow({"rejected", absl::StrCat(r.rejected)});
  counts.AddRow({"preempted and swapped", absl::StrCat(r.swapped)});
  counts.AddRow({"preempted and recomputed", absl::StrCat(r.recomputed)});
  counts.AddRow({"simulated time",
                 r.seconds < 60 ? absl::StrCat(Digits(r.seconds), " s") : Duration(r.seconds)});
  counts.AddRow({"steps", absl::StrCat(r.steps)});
  counts.AddRow({"generated tokens", absl::StrCat(r.generated_tokens)});
  counts.AddRow({"cached prompt tokens", share_of(r.cached_tokens, r.prompt_tokens, "")});
  counts.AddRow({"hit rate", Percent(r.HitRate())});
  counts.AddRow({"pages evicted", absl::StrCat(r.evictions)});
  counts.AddRow({"pages copied on write", absl::StrCat(r.copies)});
  counts.AddRow({"pages swapped out, in", absl::StrCat(r.pages_to_host, ", ", r.pages_from_host)});

  Table memory({{"", Table::kLeft},
                {"average", Table::kRight},
                {"most pages", Table::kRight},
                {"most sequences", Table::kRight}});
  const auto add = [&](const char* name, const auto& text_of) {
    memory.AddRow({name, text_of(r.average), text_of(r.peak), text_of(r.crowd)});
  };
  const auto number = [](double value) {
    return value == static_cast<double>(static_cast<int64_t>(value))
               ? absl::StrCat(static_cast<int64_t>(value))
               : absl::StrFormat("%.1f", value);
  };
  const auto bytes = [](double value) {
    return Bytes(static_cast<int64_t>(std::min(value, 9e18)));
  };
  add("running sequences", [&](const Load& l) { return number(l.sequences); });
  add("their tokens", [&](const Load& l) { return number(l.tokens); });
  add("pages in use", [&](const Load& l) { return number(l.pages); });
  add("tokens in these", [&](const Load& l) { return number(r.PagedSlots(l) - l.empty); });
  add("paged memory", [&](const Load& l) { return bytes(result.PagedBytes(l)); });
  add("waste", [&](const Load& l) { return Percent(r.Waste(l)); });
  add("contiguous memory", [&](const Load& l) { return bytes(result.ContiguousBytes(l)); });
  add("contiguous waste", [&](const Load& l) { return Percent(r.ContiguousWaste(l)); });

  streams.out << result.title << "\n"
              << Counted(r.pages, "page") << " of " << Counted(r.page, "token") << ", "
              << bytes(static_cast<double>(r.pages * r.page) *
                       static_cast<double>(result.token_bytes))
              << "; a token has " << Bytes(result.token_bytes)
              << "; contiguous preallocation reserves " << r.longest << " tokens a sequence\n\n"
              << counts.Text(streams.colours, streams.columns) << "\n"
              << memory.Text(streams.colours, streams.columns) << "\n"
              << Digits(r.TimesMore())
              << "x as many sequences fit into the same memory as with contiguous preallocation\n";
}

// The file of --plot. It is created first, so that a bad path is an error before the work.
absl::StatusOr<std::optional<AtomicFile>> PlotFile(const Flags& f) {
  if (f.plot.empty()) return std::optional<AtomicFile>();
  if (f.plot == "-") {
    return absl::InvalidArgumentError("--plot: - is no name of a file; the plot is not printed");
  }
  const std::string path = ResolvePath(f.plot);
  const auto is_other = [&](const std::string& other) {
    return !other.empty() && other != "-" && SameFile(path, ResolvePath(other));
  };
  if (is_other(f.formats.json) || is_other(f.formats.csv) || is_other(f.trace)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--plot: ", f.plot, " is the file of another flag, too"));
  }
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat("--plot: ", file.status().message()));
  }
  return std::optional<AtomicFile>(*std::move(file));
}

absl::Status ReplayTrace(const ArgumentParser& parser, Flags* f, Result* result) {
  const absl::StatusOr<DType> dtype = ParseDType(f->dtype);
  if (!dtype.ok()) return OfFlag(dtype.status());
  result->token_bytes = 2 * f->layers * f->kv_heads * f->head_dim * SizeOf(*dtype);  // K and V
  const absl::StatusOr<std::vector<Request>> requests = RequestsOf(parser, f);
  if (!requests.ok()) return requests.status();
  result->title = TraceTitle(*f, requests->size());
  const absl::StatusOr<std::unique_ptr<PageManager>> cache = PageManager::Create(f->cache);
  if (!cache.ok()) return OfFlag(cache.status());
  Progress progress(stderr, static_cast<int64_t>(requests->size()));
  f->replay.stopped = Interrupt::Pressed;
  f->replay.progress = [&](int64_t done) { progress.Show(done, result->title); };
  absl::StatusOr<ReplayReport> report = paged::Replay(*requests, f->replay, **cache);
  if (!report.ok()) return OfFlag(report.status());
  result->report = *std::move(report);
  return absl::OkStatus();
}

}  // namespace

int Replay(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "replay", arguments, streams, &code)) return code;
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(flags.formats);
  if (!files.ok()) return Fail(streams, "replay", files.status());
  absl::StatusOr<std::optional<AtomicFile>> plot = PlotFile(flags);
  if (!plot.ok()) return Fail(streams, "replay", plot.status());
  Result result;
  absl::Status s;
  {
    const StopOnCtrlC stop("replay");
    s = ReplayTrace(parser, &flags, &result);
  }
  const ReplayReport& report = result.report;
  if (s.ok() && report.rejected > 0) {
    streams.err << "attnlab replay: " << Counted(report.rejected, "request")
                << " can never fit; the first is " << report.first_rejection << "\n";
  }
  if (s.ok() && report.steps > 0) {
    const Json row = RowJson(flags, result);
    const Json json = {{"command", "replay"}, {"attnlab", AttnlabJson()}, {"rows", {row}}};
    s = files->Write(json, {row}, streams);
    if (flags.formats.Tables()) Print(result, streams);
    if (s.ok() && plot->has_value()) {
      s = (*plot)->Append(ReplaySvg(report, result.title, result.token_bytes));
      if (s.ok()) s = (*plot)->Commit();
    }
  } else if (s.ok() && !report.stopped) {
    s = absl::InvalidArgumentError("--pages: no request fits");
  }
  if (!s.ok()) return Fail(streams, "replay", s);
  if (report.stopped) return Interrupted(streams, "replay", report.steps == 0, "replayed");
  return kOk;
}

}  // namespace attnlab::command
