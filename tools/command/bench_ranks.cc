#include "tools/command/bench_ranks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/all_to_all.h"
#include "attention/multi_gpu/gpus/peer_communicator.h"
#include "attention/multi_gpu/heads.h"
#include "attention/multi_gpu/memory_communicator.h"
#include "attention/multi_gpu/on_threads.h"
#include "attention/multi_gpu/pieces.h"
#include "attention/multi_gpu/ring.h"
#include "attention/multi_gpu/simulator.h"
#include "attention/multi_gpu/split_kv.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/verify.h"
#include "tools/command/machine.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/table.h"

namespace attnlab::command {
namespace {

using multi_gpu::Chunk;
using multi_gpu::Communicator;
using multi_gpu::Order;
using multi_gpu::StepTime;
using multi_gpu::Way;
using Clock = std::chrono::steady_clock;
using Ranks = std::vector<std::unique_ptr<Communicator>>;

constexpr absl::Duration kLimit = absl::Minutes(2);
constexpr double kRepetition = 0.05;  // seconds, at least, of calls one after the other
constexpr int64_t kMostRepetitions = 200;

// A way to divide a problem. `model`: the simulator's, if it has one; split KV has none.
struct NamedWay {
  const char* name;
  std::optional<Way> model;

  bool SplitsKv() const { return !model.has_value(); }
  bool ByHeads() const { return model == Way::kHeads; }
  Order order() const { return model == Way::kZigzagRing ? Order::kZigzag : Order::kInOrder; }
};
constexpr NamedWay kWays[] = {{"zigzag", Way::kZigzagRing},
                              {"ring", Way::kRing},
                              {"alltoall", Way::kAllToAll},
                              {"splitkv", std::nullopt},
                              {"heads", Way::kHeads}};
constexpr NamedWay kOne = {"one", Way::kHeads};

// Some rows and heads of a tensor [b, rows, heads, d], on a rank's device.
class Share {
 public:
  static absl::StatusOr<Share> Make(const ConstTensorView& whole, std::vector<Chunk> rows,
                                    Chunk heads, Device device) {
    Share share;
    share.rows_ = std::move(rows), share.heads_ = heads;
    const int64_t b = whole.shape[0], count = multi_gpu::RowsOf(share.rows_), d = whole.shape[3];
    share.host_.resize(b * count * heads.size() * d * SizeOf(whole.dtype));
    absl::StatusOr<Buffer> memory =
        Buffer::Allocate(device, static_cast<int64_t>(share.host_.size()));
    if (!memory.ok()) return memory.status();
    share.memory_ = *std::move(memory);
    share.view_ = BshdView(share.memory_.data(), whole.dtype, device, b, count, heads.size(), d);
    return share;
  }

  absl::Status Upload(const ConstTensorView& whole) {
    ForRows(whole, [](char* mine, const char* theirs, int64_t bytes) {
      std::memcpy(mine, theirs, bytes);
    });
    return memory_.CopyFromHost(host_.data(), static_cast<int64_t>(host_.size()));
  }
  absl::Status Download(const TensorView& whole) {
    absl::Status s = memory_.CopyToHost(host_.data(), static_cast<int64_t>(host_.size()));
    ForRows(whole, [](const char* mine, const char* theirs, int64_t bytes) {
      std::memcpy(const_cast<char*>(theirs), mine, bytes);
    });
    return s;
  }
  // NaN: rows that are not written show.
  absl::Status Poison() { return memory_.Fill(0xFF); }
  const TensorView& view() const { return view_; }

 private:
  // Heads of a row are neighbours in both.
  template <typename Copy>
  void ForRows(const ConstTensorView& whole, Copy copy) {
    const int64_t size = SizeOf(whole.dtype), bytes = heads_.size() * whole.shape[3] * size;
    char* mine = host_.data();
    for (int64_t b = 0; b < whole.shape[0]; ++b) {
      for (const Chunk& c : rows_) {
        for (int64_t row = c.begin; row < c.end; ++row, mine += bytes) {
          copy(mine,
               static_cast<const char*>(whole.data) + whole.Offset(b, row, heads_.begin, 0) * size,
               bytes);
        }
      }
    }
  }

  std::vector<Chunk> rows_;
  Chunk heads_;
  std::vector<char> host_;
  Buffer memory_;
  TensorView view_;
};

// A rank's tensors, and the call.
class Rank {
 public:
  absl::Status Make(const AttentionProblem& p, NamedWay way, int ranks, int rank, Device device,
                    const AttentionTensors& whole, const TensorView& o) {
    const Chunk kv = way.ByHeads() ? multi_gpu::KvHeadsOf(p, ranks, rank) : Chunk{0, p.hkv};
    const int64_t group = p.GroupSize();
    const Chunk query = {kv.begin * group, kv.end * group};
    const auto rows = [&](int64_t length, bool are_keys) {
      return way.ByHeads() || (way.SplitsKv() && !are_keys)
                 ? std::vector<Chunk>{{0, length}}
                 : multi_gpu::ChunksOf(length, ranks, rank, way.order());
    };
    const struct {
      ConstTensorView view;
      std::vector<Chunk> rows;
      Chunk heads;
    } kTensors[] = {{whole.q, rows(p.sq, false), query},
                    {whole.k, rows(p.skv, true), kv},
                    {whole.v, rows(p.skv, true), kv},
                    {o, rows(p.sq, false), query}};
    for (const auto& t : kTensors) {
      absl::StatusOr<Share> share = Share::Make(t.view, t.rows, t.heads, device);
      absl::Status s = share.status();
      if (s.ok()) s = shares_.size() < 3 ? share->Upload(t.view) : share->Poison();
      if (!s.ok()) return s;
      shares_.push_back(*std::move(share));
    }
    problem_ = p, way_ = way;
    tensors_.q = shares_[0].view(), tensors_.k = shares_[1].view(), tensors_.v = shares_[2].view();
    tensors_.o = shares_[3].view();
    return absl::OkStatus();
  }

  absl::Status Call(Communicator& c, const std::string& kernel, std::vector<StepTime>* steps) {
    if (way_.SplitsKv()) return multi_gpu::SplitKvForward(problem_, c, tensors_, kernel);
    if (way_.ByHeads()) return multi_gpu::HeadsForward(problem_, kernel, c, tensors_);
    if (way_.model == Way::kAllToAll) {
      return multi_gpu::AllToAllForward(problem_, {way_.order(), kernel}, c, tensors_);
    }
    return multi_gpu::RingForward(problem_, {way_.order(), kernel, steps}, c, tensors_);
  }
  absl::Status GiveO(const TensorView& whole) { return shares_[3].Download(whole); }

 private:
  AttentionProblem problem_;
  NamedWay way_ = kOne;
  std::vector<Share> shares_;
  AttentionTensors tensors_;
};

absl::Status OnRanks(const Ranks& ranks, const std::function<absl::Status(int)>& of_rank) {
  absl::Status s;
  for (const absl::Status& of : multi_gpu::OnThreads(static_cast<int>(ranks.size()), of_rank)) {
    s.Update(of);
  }
  return s;
}

absl::StatusOr<Ranks> MakeRanks(const RanksFlags& f, int count) {
  if (f.on_cpu) return multi_gpu::RanksInMemory(count, kLimit);
  std::vector<int> devices(count);
  for (int i = 0; i < count; ++i) devices[i] = i;
  return multi_gpu::RanksOnGpus(devices, kLimit);
}

Device DeviceOf(const RanksFlags& f, int rank) {
  return f.on_cpu ? Device::Cpu() : Device::Cuda(rank);
}

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
absl::StatusOr<Timed> Time(const Ranks& ranks, std::vector<Rank>* parts, const RanksFlags& f) {
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
        s = (*parts)[i].Call(c, f.kernel, nullptr);
      }
      if (s.ok()) s = Finish(DeviceOf(f, i));
      of_rank[i] =
          std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(calls);
      return s;
    });
  };
  const auto slowest = [&] { return *std::max_element(of_rank.begin(), of_rank.end()); };
  absl::Status s = repeat(1);  // allocates, loads code
  if (s.ok()) s = repeat(1);
  if (!s.ok()) return s;
  const int64_t calls = static_cast<int64_t>(std::ceil(kRepetition / slowest()));
  std::vector<double> seconds;
  const auto begin = Clock::now();
  do {
    if (s = repeat(calls); !s.ok()) return s;
    seconds.push_back(slowest());
  } while (!Interrupt::Pressed() && static_cast<int64_t>(seconds.size()) < kMostRepetitions &&
           (seconds.size() < 5 ||
            std::chrono::duration<double>(Clock::now() - begin).count() < f.seconds));
  std::sort(seconds.begin(), seconds.end());
  Timed timed;
  timed.seconds = seconds[seconds.size() / 2];
  timed.low = seconds[seconds.size() / 10], timed.high = seconds[seconds.size() * 9 / 10];
  std::vector<std::vector<StepTime>> steps(n);
  s = OnRanks(ranks, [&](int i) { return (*parts)[i].Call(*ranks[i], f.kernel, &steps[i]); });
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
  const int n = static_cast<int>(ranks.size());
  oracle::HostOutputs outputs;
  outputs.o_storage.resize(p.b * p.sq * p.hq * p.dv * SizeOf(p.ODType()) / 2 + 1);
  outputs.o = BshdView(static_cast<void*>(outputs.o_storage.data()), p.ODType(), Device::Cpu(), p.b,
                       p.sq, p.hq, p.dv);
  std::vector<Rank> parts(n);
  for (int i = 0; i < n; ++i) {
    absl::Status s =
        parts[i].Make(p, way, n, i, DeviceOf(f, i), of.inputs.host_tensors(), outputs.o);
    if (!s.ok()) return s;
  }
  Judged judged;
  absl::StatusOr<Timed> timed = Time(ranks, &parts, f);
  if (!timed.ok()) return timed.status();
  judged.timed = *std::move(timed);
  if (!of.expected.has_value()) return judged;
  for (Rank& part : parts) {
    if (absl::Status s = part.GiveO(outputs.o); !s.ok()) return s;
  }
  judged.error = oracle::ErrorsOf(of.plan, of.inputs.host_tensors(), *of.expected, outputs).o;
  return judged;
}

absl::StatusOr<Case> MakeCase(const AttentionProblem& p, const RanksFlags& f) {
  absl::StatusOr<Plan> plan = MakePlan(p, DeviceOf(f, 0), f.kernel);
  if (!plan.ok()) return plan.status();
  oracle::InputOptions options;
  options.seed = f.seed;
  absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(p, DeviceOf(f, 0), options);
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

// The model's, for a kernel of the rate that one rank has. Links as NVLink between two H200s.
std::optional<double> Predicted(const AttentionProblem& p, const NamedWay& way, int ranks,
                                double one) {
  if (!way.model.has_value()) return std::nullopt;
  multi_gpu::Machine machine;
  machine.flops_per_second = CompulsoryTraffic(p).flops / one;
  machine.memory_per_second = 4.3e12;
  machine.within = machine.between = {390e9, 20e-6};
  const auto predicted = multi_gpu::Predict(*way.model, p, ranks, machine);
  if (!predicted.ok()) return std::nullopt;
  return predicted->seconds;
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
    const auto* const it = std::find_if(std::begin(kWays), std::end(kWays),
                                        [&](const NamedWay& w) { return w.name == name; });
    if (it == std::end(kWays)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--parallel: \"", name, "\" is not one of zigzag, ring, alltoall, splitkv, heads"));
    }
    ways.push_back(*it);
  }
  if (ways.empty()) ways.assign(std::begin(kWays), std::end(kWays));
  for (const AttentionProblem& p : problems) {
    if (p.lens == Lengths::kFixed && p.page == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--problem: ", p.ToString(), ": with --gpus, lengths must be fixed, without pages"));
  }
  if (!f.on_cpu) {
    const auto devices = cuda_backend::Devices();
    if (!devices.ok()) return devices.status();
    if (static_cast<int64_t>(devices->size()) < f.gpus) {
      return absl::UnavailableError(
          absl::StrCat("--gpus: ", f.gpus, ", but this machine has ", devices->size()));
    }
  }
  absl::StatusOr<Ranks> one = MakeRanks(f, 1), all = MakeRanks(f, n);
  if (!one.ok() || !all.ok()) return one.ok() ? all.status() : one.status();
  for (const AttentionProblem& p : problems) {
    absl::StatusOr<Case> of = MakeCase(p, f);
    if (!of.ok()) return of.status();
    const absl::StatusOr<Judged> alone = TimeWay(p, kOne, *one, *of, f);
    if (!alone.ok()) return alone.status();
    const double seconds = alone->timed.seconds;
    rows->push_back(RowOf(*of, kOne.name, 1, *alone, seconds));
    for (const NamedWay& way : ways) {
      if (Interrupt::Pressed()) return absl::OkStatus();
      const absl::StatusOr<Judged> judged = TimeWay(p, way, *all, *of, f);
      if (absl::IsUnimplemented(judged.status())) {
        left_out->push_back(absl::StrCat(way.name, ": ", judged.status().message()));
        continue;
      }
      if (!judged.ok()) return judged.status();
      rows->push_back(RowOf(*of, way.name, n, *judged, seconds));
      const std::optional<double> predicted = Predicted(p, way, n, seconds);
      if (predicted.has_value()) rows->back()["predicted_seconds"] = *predicted;
    }
  }
  return absl::OkStatus();
}

void PrintRanks(const std::vector<Json>& rows, const Streams& streams) {
  const auto milliseconds = [](const Json& seconds) { return Digits(1e3 * seconds.get<double>()); };
  for (size_t i = 0; i < rows.size();) {
    const std::string problem = rows[i]["problem"];
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
    streams.out << table.Text(streams.colours, streams.columns) << "\n";
  }
}

}  // namespace attnlab::command
