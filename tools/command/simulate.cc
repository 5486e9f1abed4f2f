// attnlab simulate: what a problem would take on many GPUs, by each way to divide it that the simulator knows.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/core/problem.h"
#include "attention/multi_gpu/simulator.h"
#include "tools/command/command.h"
#include "tools/command/selection.h"
#include "tools/command/sweep.h"
#include "tools/command/version.h"
#include "tools/lib/arguments.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

using multi_gpu::Way;

constexpr const char* kDefaultProblem = "hq=32,hkv=8,sq=131072,d=128,dtype=bf16,mask=causal";
constexpr Way kWays[] = {Way::kZigzagRing, Way::kRing, Way::kAllToAll, Way::kHeads};

struct Flags {
  ProblemFlags problem;
  std::vector<std::string> gpus;
  multi_gpu::Machine h200;
  double tflops = 1e-12 * h200.flops_per_second, launch = 1e6 * h200.launch,
         memory = 1e-12 * h200.memory_per_second, within = 1e-9 * h200.within.bytes_per_second,
         within_latency = 1e6 * h200.within.latency, between = 1e-9 * h200.between.bytes_per_second,
         between_latency = 1e6 * h200.between.latency;
  int64_t node = 8;
  Formats formats;
};

ArgumentParser MakeParser(Flags* f) {
  ArgumentParser parser("attnlab simulate",
                        "Predicts how long problems take on many GPUs, by a model of the kernel's "
                        "rate and of the links.\nNeeds no GPU. Without a problem it takes one of "
                        "131072 tokens.");
  parser.AddGroup("What");
  AddProblemFlags(&parser, &f->problem);
  parser.AddStrings("gpus", "N", &f->gpus, "number of GPUs, repeatable [8, 64, 1024]");
  parser.AddGroup("A machine, by default one H200 of a node of 8");
  parser.AddNumber("tflops", "X", &f->tflops, 1e-3, 1e9,
                   "rate of the kernel, by attnlab bench, TFLOP/s [690]");
  parser.AddNumber("launch", "X", &f->launch, 0, 1e9, "fixed time of a kernel, us [8]");
  parser.AddNumber("memory", "X", &f->memory, 1e-3, 1e6, "rate of memory, TB/s [4.3]");
  parser.AddInteger("node", "N", &f->node, 1, multi_gpu::kMostRanks, "GPUs per node [8]");
  parser.AddNumber("link", "X", &f->within, 1e-3, 1e9,
                   "each way, between GPUs of a node, GB/s [390]");
  parser.AddNumber("link_latency", "X", &f->within_latency, 0, 1e9,
                   "latency of these, per tensor, us [15]");
  parser.AddNumber("network", "X", &f->between, 1e-3, 1e9,
                   "each way and per GPU, between nodes, GB/s [50]");
  parser.AddNumber("network_latency", "X", &f->between_latency, 0, 1e9,
                   "latency of these, per tensor, us [30]");
  parser.AddGroup("Results");
  AddJsonFlag(&parser, &f->formats);
  AddCsvFlag(&parser, &f->formats);
  parser.AddSection("Ways to divide a problem",
                    "zigzag ring  rows; K and V travel; rows in an order that balances a mask\n"
                    "ring         the same in order\n"
                    "all-to-all   rows outside attention, heads inside\n"
                    "heads        heads; nothing travels");
  parser.AddSection("Examples",
                    "attnlab simulate --gpus=8 --gpus=1024\n"
                    "attnlab simulate --problem=hq=16,sq=10000000,d=128,dtype=bf16 --tflops=700");
  return parser;
}

multi_gpu::Machine MachineOf(const Flags& f) {
  multi_gpu::Machine m;
  m.flops_per_second = f.tflops * 1e12;
  m.launch = f.launch * 1e-6;
  m.memory_per_second = f.memory * 1e12;
  m.ranks_per_node = static_cast<int>(f.node);
  m.within.bytes_per_second = f.within * 1e9;
  m.within.latency = f.within_latency * 1e-6;
  m.between.bytes_per_second = f.between * 1e9;
  m.between.latency = f.between_latency * 1e-6;
  return m;
}

absl::Status Predictions(const Flags& f, std::vector<Json>* rows) {
  ProblemFlags wanted = f.problem;
  if (wanted.problems.empty() && wanted.presets.empty()) wanted.problems = {kDefaultProblem};
  const absl::StatusOr<std::vector<AttentionProblem>> problems = ProblemsOf(wanted);
  if (!problems.ok()) return problems.status();
  const std::vector<std::string> counts =
      f.gpus.empty() ? std::vector<std::string>{"8", "64", "1024"} : f.gpus;
  const multi_gpu::Machine machine = MachineOf(f);
  for (const AttentionProblem& p : *problems) {
    for (const std::string& text : counts) {
      const absl::StatusOr<int64_t> gpus = ParseCount(text);
      if (!gpus.ok() || *gpus < 1 || *gpus > multi_gpu::kMostRanks) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--gpus: \"", text, "\" is not a number from 1 to ", multi_gpu::kMostRanks));
      }
      const int ranks = static_cast<int>(*gpus);
      const absl::StatusOr<double> one = PredictOne(p, machine);
      if (!one.ok())
        return absl::InvalidArgumentError(absl::StrCat("--problem: ", one.status().message()));
      for (const Way way : kWays) {
        const auto with = Predict(way, p, ranks, machine);
        if (!with.ok()) return with.status();
        rows->push_back({{"problem", p.ToString()},
                         {"gpus", ranks},
                         {"way", std::string(multi_gpu::Name(way))},
                         {"seconds", with->seconds},
                         {"waiting", with->waiting},
                         {"one_gpu", *one},
                         {"speedup", *one / with->seconds}});
      }
    }
  }
  return absl::OkStatus();
}

void Print(const std::vector<Json>& rows, const Streams& streams) {
  for (size_t i = 0; i < rows.size();) {
    const std::string problem = rows[i]["problem"];
    Table table({{"GPUs", Table::kRight},
                 {"way", Table::kLeft},
                 {"ms", Table::kRight},
                 {"waiting", Table::kRight},
                 {"speedup", Table::kRight}});
    streams.out << problem << "\n\n";
    for (; i < rows.size() && rows[i]["problem"] == problem; ++i) {
      const Json& row = rows[i];
      const double seconds = row["seconds"];
      table.AddRow({absl::StrCat(row["gpus"].get<int>()), row["way"].get<std::string>(),
                    Digits(1e3 * seconds),
                    absl::StrFormat("%.1f %%", 100 * row["waiting"].get<double>() / seconds),
                    Digits(row["speedup"].get<double>())});
    }
    streams.out << table.Text(streams.colours, streams.columns) << "\n";
  }
  streams.out << "Predicted, not measured.\n";
}

}  // namespace

int Simulate(const Arguments& arguments, const Streams& streams) {
  Flags flags;
  ArgumentParser parser = MakeParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "simulate", arguments, streams, &code)) return code;
  absl::StatusOr<ResultFiles> files = ResultFiles::Create(flags.formats);
  if (!files.ok()) return Fail(streams, "simulate", files.status());
  std::vector<Json> rows;
  absl::Status s = Predictions(flags, &rows);
  if (s.ok()) {
    s = files->Write({{"command", "simulate"}, {"attnlab", AttnlabJson()}, {"rows", rows}}, rows,
                     streams);
  }
  if (!s.ok()) return Fail(streams, "simulate", s);
  if (flags.formats.Tables()) Print(rows, streams);
  return kOk;
}

}  // namespace attnlab::command
