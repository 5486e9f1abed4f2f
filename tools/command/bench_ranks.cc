#include "tools/command/bench_ranks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/multi_gpu/ring.h"
#include "attention/multi_gpu/simulator.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/verify.h"
#include "tools/command/machine.h"
#include "tools/command/ranks.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

using multi_gpu::Communicator;
using multi_gpu::StepTime;
using Clock = std::chrono::steady_clock;

// Seconds, at least, of calls one after the other. Ranks begin and end apart, by 0.1 ms or so. Short calls wait for
// the host, whose speed differs by 15 % from one set of threads to the next: each repetition has its own.
constexpr double kRepetition = 0.2, kShortRepetition = 0.02, kShort = 1e-3;
constexpr int64_t kRepetitions = 5, kShortRepetitions = 50, kMostRepetitions = 200;

absl::Status Finish(Device device) {
  return device.kind == DeviceKind::kCpu ? absl::OkStatus()
                                         : cuda_backend::Synchronize(device.ordinal);
}

struct Timed {
  double seconds = 0;           // the median of repetitions
  double low = 0, high = 0;     // within which 80 % of them lie
  std::vector<StepTime> steps;  // of the rank whose steps take the longest
};

// Repetitions begin together: each rank waits for the others, and the slowest one counts.
absl::StatusOr<Timed> Time(const Ranks& ranks, const DividedProblem& divided, const RanksFlags& f) {
  const int n = static_cast<int>(ranks.size());
  std::vector<double> of_rank(n);
  const auto repeat = [&](int64_t calls) {
    return OnRanks(ranks, [&](int i) -> absl::Status {
      Communicator& c = *ranks[i];
      const char none = 0;
      std::vector<char> all(n);
      absl::Status s = Gather(c, "begin of a repetition", &none, 1, all.data());
      const auto begin = Clock::now();
      for (int64_t call = 0; call < calls && s.ok(); ++call) {
        s = divided.Call(i, f.kernel, nullptr);
      }
      if (s.ok()) s = Finish(c.device());
      of_rank[i] =
          std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(calls);
      return s;
    });
  };
  const auto slowest = [&] { return *std::max_element(of_rank.begin(), of_rank.end()); };
  absl::Status s = repeat(1);  // allocates, loads code
  if (s.ok()) s = repeat(1);
  if (!s.ok()) return s;
  const bool is_short = slowest() < kShort;
  const int64_t calls = static_cast<int64_t>(
                    std::ceil((is_short ? kShortRepetition : kRepetition) / slowest())),
                least = is_short ? kShortRepetitions : kRepetitions;
  std::vector<double> seconds;
  const auto begin = Clock::now();
  do {
    if (s = repeat(calls); !s.ok()) return s;
    seconds.push_back(slowest());
  } while (!Interrupt::Pressed() && static_cast<int64_t>(seconds.size()) < kMostRepetitions &&
           (static_cast<int64_t>(seconds.size()) < least ||
            std::chrono::duration<double>(Clock::now() - begin).count() < f.seconds));
  std::sort(seconds.begin(), seconds.end());
  Timed timed;
  timed.seconds = seconds[seconds.size() / 2];
  timed.low = seconds[seconds.size() / 10], timed.high = seconds[seconds.size() * 9 / 10];
  std::vector<std::vector<StepTime>> steps(n);
  s = OnRanks(ranks, [&](int i) { return divided.Call(i, f.kernel, &steps[i]); });
  double most = 0;
  for (const std::vector<StepTime>& some : steps) {
    double sum = 0;
    for (const StepTime& step : some) sum += step.computing + step.waiting;
    if (sum > most) most = sum, timed.steps = some;
  }
  if (!s.ok()) return s;
  return timed;
}

struct Judged {
  Timed timed;
  std::optional<oracle::TensorError> error;
};

// What all ways of a problem share.
struct Case {
  oracle::Inputs inputs;
  Plan plan;  // of the whole, for the oracle
  std::optional<oracle::Expected> expected;
};

absl::StatusOr<Judged> TimeWay(const AttentionProblem& p, const NamedWay& way, const Ranks& ranks,
                               const Case& of, const RanksFlags& f) {
  oracle::HostOutputs outputs;
  outputs.o_storage.resize(p.b * p.sq * p.hq * p.dv * SizeOf(p.ODType()) / 2 + 1);
  outputs.o = BshdView(static_cast<void*>(outputs.o_storage.data()), p.ODType(), Device::Cpu(), p.b,
                       p.sq, p.hq, p.dv);
  absl::StatusOr<DividedProblem> divided =
      DividedProblem::Make(p, way, ranks, of.inputs.host_tensors(), outputs.o);
  if (!divided.ok()) return divided.status();
  Judged judged;
  absl::StatusOr<Timed> timed = Time(ranks, *divided, f);
  if (!timed.ok()) return timed.status();
  judged.timed = *std::move(timed);
  if (!of.expected.has_value()) return judged;
  if (absl::Status s = divided->GiveO(outputs.o); !s.ok()) return s;
  judged.error = oracle::ErrorsOf(of.plan, of.inputs.host_tensors(), *of.expected, outputs).o;
  return judged;
}

absl::StatusOr<Case> MakeCase(const AttentionProblem& p, const RanksFlags& f) {
  const Device first = f.on_cpu ? Device::Cpu() : Device::Cuda(0);
  absl::StatusOr<Plan> plan = MakePlan(p, first, f.kernel);
  if (!plan.ok()) return plan.status();
  oracle::InputOptions options;
  options.seed = f.seed;
  absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(p, first, options);
  if (!inputs.ok()) return inputs.status();
  Case made = {*std::move(inputs), *std::move(plan), std::nullopt};
  if (!f.verify) return made;
  absl::StatusOr<oracle::Expected> expected =
      oracle::ExpectedOf(made.plan, made.inputs.host_tensors(), made.inputs.tensors(),
                         oracle::VerifyOptions().oracle_flops, f.seed);
  if (!expected.ok()) return expected.status();
  made.expected = *std::move(expected);
  return made;
}

// How long a thread takes to start one of many copies, which is all that an all-to-all of a few rows is;
// `unknown` if it cannot be timed.
double TimeHost(const Ranks& ranks, RanksFlags f, double unknown) {
  const int n = static_cast<int>(ranks.size());
  AttentionProblem p;
  p.hq = p.hkv = p.sq = p.skv = n;
  p.d = p.dv = 64;
  p.dtype = DType::kFloat16;
  f.kernel.clear();
  f.verify = false;
  const absl::StatusOr<Case> of = f.on_cpu ? absl::UnavailableError("threads") : MakeCase(p, f);
  if (!of.ok()) return unknown;
  const absl::StatusOr<Judged> judged = TimeWay(p, *WayOf("alltoall"), ranks, *of, f);
  return judged.ok() ? judged->timed.seconds / (multi_gpu::kAllToAllCopies * n) : unknown;
}

// GPUs like this one, of which one takes so many seconds.
multi_gpu::Machine MachineOf(const Plan& plan, double one, double host) {
  const DeviceInfo& gpu = plan.device;
  multi_gpu::Machine m;
  m.host = host;
  m.l2_bytes = static_cast<double>(gpu.last_level_cache_bytes);
  if (gpu.memory_bytes_per_second > 0) {
    m.memory_per_second = 0.88 * gpu.memory_bytes_per_second;  // what a copy reaches
  }
  return multi_gpu::WithRateOf(plan.problem, one, m);
}

// The model's, which is of GPUs, for a kernel of the rate that one has.
std::optional<double> Predicted(const Plan& plan, const NamedWay& way, int ranks, double one,
                                double host) {
  if (!way.model.has_value()) return std::nullopt;
  const auto predicted =
      multi_gpu::Predict(*way.model, plan.problem, ranks, MachineOf(plan, one, host));
  if (!predicted.ok()) return std::nullopt;
  return predicted->seconds;
}

// Which way the model would choose where rows are divided, "one" if none is faster than one GPU.
std::string Chosen(const Plan& plan, int ranks, double one, double host) {
  const auto choice = multi_gpu::Choose(plan.problem, ranks, MachineOf(plan, one, host));
  if (!choice.ok()) return "";
  if (choice->ranks == 1) return kOne.name;
  const auto it = std::find_if(Ways().begin(), Ways().end(),
                               [&](const NamedWay& w) { return w.model == choice->way; });
  return it->name;
}

Json RowOf(const Case& of, const char* way, int ranks, const Judged& judged, double one) {
  const AttentionProblem& p = of.plan.problem;
  const Timed& t = judged.timed;
  Json row = {{"problem", p.ToString()},
              {"way", way},
              {"ranks", ranks},
              {"machine", MachineJson(of.plan.device)},
              {"date", UtcNow()},
              {"median_seconds", t.seconds},
              {"p10_seconds", t.low},
              {"p90_seconds", t.high},
              {"one_rank_seconds", one},
              {"speed_up", one / t.seconds},
              {"tflop_per_second", CompulsoryTraffic(p).flops / t.seconds / 1e12}};
  for (const StepTime& step : t.steps) {
    row["steps"].push_back({{"computing", step.computing}, {"waiting", step.waiting}});
  }
  if (judged.error.has_value()) {
    row["error"] = judged.error->max_error, row["bound"] = judged.error->bound;
    row["verdict"] = judged.error->Passed() ? "ok" : "WRONG";
  }
  return row;
}

}  // namespace

absl::Status BenchRanks(absl::Span<const AttentionProblem> problems, const RanksFlags& f,
                        std::vector<Json>* rows, std::vector<std::string>* left_out) {
  const int n = static_cast<int>(f.gpus);
  std::vector<NamedWay> ways;
  for (const std::string& name : f.ways) {
    const absl::StatusOr<NamedWay> way = WayOf(name);
    if (!way.ok()) return way.status();
    ways.push_back(*way);
  }
  if (ways.empty()) ways.assign(Ways().begin(), Ways().end());
  for (const AttentionProblem& p : problems) {
    if (p.lens == Lengths::kFixed && p.page == 0 && SizeOf(p.KvDType()) > 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--problem: ", p.ToString(),
                     ": with --gpus, lengths must be fixed, without pages and fp8"));
  }
  absl::StatusOr<Ranks> all = MakeRanks(n, f.on_cpu), one = MakeRanks(1, f.on_cpu);
  if (!one.ok() || !all.ok()) return all.ok() ? one.status() : all.status();
  double host = TimeHost(*all, f, multi_gpu::Machine().host);
  int host_times = 1;
  Progress progress(stderr, static_cast<int64_t>(problems.size() * (1 + ways.size())));
  int64_t begun = 0;
  for (const AttentionProblem& p : problems) {
    progress.Show(begun++, absl::StrCat(kOne.name, " ", p.ToString()));
    absl::StatusOr<Case> of = MakeCase(p, f);
    if (!of.ok()) return of.status();
    const absl::StatusOr<Judged> alone = TimeWay(p, kOne, *one, *of, f);
    if (!alone.ok()) return alone.status();
    const double seconds = alone->timed.seconds;
    double slowest = seconds;
    rows->push_back(RowOf(*of, kOne.name, 1, *alone, seconds));
    if (!f.on_cpu) {
      // GPUs of one host differ. All get equal parts, so the slowest counts.
      rows->back()["seconds_of_gpus"] = {seconds};
      for (int i = 1; i < n; ++i) {
        const absl::StatusOr<Ranks> other = MakeRanks(1, f.on_cpu, i);
        if (!other.ok()) return other.status();
        const absl::StatusOr<Judged> timed = TimeWay(p, kOne, *other, *of, f);
        if (!timed.ok()) return timed.status();
        rows->back()["seconds_of_gpus"].push_back(timed->timed.seconds);
        slowest = std::max(slowest, timed->timed.seconds);
      }
      // Where ways wait for the host, which takes up to 0.4 ms. One timing is off by 5 %, so the mean counts.
      if (seconds < kShort) host += (TimeHost(*all, f, host) - host) / ++host_times;
      rows->back()["model_chooses"] = Chosen(of->plan, n, slowest, host);
    }
    for (const NamedWay& way : ways) {
      if (Interrupt::Pressed()) return absl::OkStatus();
      progress.Show(begun++, absl::StrCat(way.name, " ", p.ToString()));
      const absl::StatusOr<Judged> judged = TimeWay(p, way, *all, *of, f);
      if (absl::IsUnimplemented(judged.status())) {
        left_out->push_back(absl::StrCat(way.name, ": ", judged.status().message()));
        continue;
      }
      if (!judged.ok()) return judged.status();
      rows->push_back(RowOf(*of, way.name, n, *judged, seconds));
      const std::optional<double> predicted = Predicted(of->plan, way, n, slowest, host);
      if (predicted.has_value() && !f.on_cpu) {
        rows->back()["predicted_seconds"] = *predicted;
        rows->back()["slowest_rank_seconds"] = slowest;
        rows->back()["host_seconds"] = host;
      }
    }
  }
  return absl::OkStatus();
}

void PrintRanks(const std::vector<Json>& rows, const Streams& streams) {
  const auto milliseconds = [](const Json& seconds) { return Digits(1e3 * seconds.get<double>()); };
  for (size_t i = 0; i < rows.size();) {
    const std::string problem = rows[i]["problem"], chosen = rows[i].value("model_chooses", "");
    std::string of_gpus;
    for (const Json& seconds : rows[i].value("seconds_of_gpus", Json::array())) {
      absl::StrAppend(&of_gpus, of_gpus.empty() ? "" : ", ", milliseconds(seconds));
    }
    streams.out << problem << "\n\n";
    Table table({{"ranks", Table::kRight},
                 {"way", Table::kLeft},
                 {"ms", Table::kRight},
                 {"speedup", Table::kRight},
                 {"predicted ms", Table::kRight},
                 {"computing ms", Table::kLeft},
                 {"waiting ms", Table::kLeft},
                 {"verdict", Table::kLeft}});
    for (; i < rows.size() && rows[i]["problem"] == problem; ++i) {
      const Json& row = rows[i];
      std::string computing, waiting;
      for (const Json& step : row.value("steps", Json::array())) {
        absl::StrAppend(&computing, computing.empty() ? "" : " + ",
                        milliseconds(step["computing"]));
        absl::StrAppend(&waiting, waiting.empty() ? "" : " + ", milliseconds(step["waiting"]));
      }
      table.AddRow({absl::StrCat(row["ranks"].get<int>()), row["way"].get<std::string>(),
                    milliseconds(row["median_seconds"]), Digits(row["speed_up"].get<double>()),
                    row.contains("predicted_seconds") ? milliseconds(row["predicted_seconds"]) : "",
                    computing, waiting, row.value("verdict", "")});
    }
    streams.out << table.Text(streams.colours, streams.columns);
    if (!of_gpus.empty()) streams.out << "\nAlone, the GPUs take " << of_gpus << " ms.\n";
    if (chosen == kOne.name) {
      streams.out << "\nThe model chooses one GPU: to divide rows would take longer.\n";
    } else if (!chosen.empty()) {
      streams.out << "\nWhere rows are divided, the model chooses " << chosen << ".\n";
    }
    streams.out << "\n";
  }
}

}  // namespace attnlab::command
