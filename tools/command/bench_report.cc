#include "tools/command/bench_report.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/sweep.h"
#include "tools/table.h"
#include "tools/terminal.h"

namespace attnlab::command {
namespace {

// The row that the speed-up of `row` is against: the first of its problem, or of the baseline.
const bench::Row* BaselineOf(const bench::Row& row, const std::vector<bench::Row>& rows,
                             const std::string& baseline) {
  for (const bench::Row& other : rows) {
    if (other.status.ok() && other.plan.problem == row.plan.problem &&
        (baseline.empty() || other.plan.kernel->traits().name == baseline)) {
      return &other;
    }
  }
  return nullptr;
}

Json RowJson(const bench::Row& row, const bench::Row* baseline, const BenchReport& f,
             const std::string& date) {
  Json json = {{"problem", row.plan.problem.ToString()},
               {"kernel", row.plan.kernel->traits().name},
               {"config", row.plan.config.ToString()},
               {"machine", MachineJson(row.plan.device)},
               {"median_seconds", row.median},
               {"p10_seconds", row.p10},
               {"p90_seconds", row.p90},
               {"repetitions", row.repetitions},
               {"calls_per_repetition", row.calls_per_repetition},
               {"tflop_per_second", row.TflopPerSecond()},
               {"gb_per_second", row.GbPerSecond()},
               {"moved_gb_per_second", row.MovedGbPerSecond()},
               {"flops", row.compulsory.flops},
               {"compulsory_bytes", row.compulsory.Bytes()},
               {"expected_bytes", row.expected.Bytes()},
               {"baseline", nullptr},
               {"speed_up", nullptr},
               {"verdict", !f.verify      ? "not checked"
                           : row.verified ? "ok"
                                          : "wrong"},
               {"error", nullptr},
               {"bound", nullptr},
               {"input_sets", row.input_sets},
               {"input_set_bytes", row.set_bytes},
               {"past_last_level_cache", row.past_cache},
               {"seed", f.seed},
               {"lse", f.lse},
               {"commit", nullptr},
               {"date", date}};
  if (!row.status.ok()) {
    json["verdict"] = "failed";
    json["message"] = std::string(row.status.message());
    for (const char* key : {"median_seconds", "p10_seconds", "p90_seconds", "tflop_per_second",
                            "gb_per_second", "moved_gb_per_second"}) {
      json[key] = nullptr;
    }
    baseline = nullptr;
  }
  if (baseline != nullptr) {
    json["baseline"] = baseline->plan.kernel->traits().name;
    json["speed_up"] = baseline->median / row.median;
  }
  if (f.verify && row.status.ok()) {
    json["error"] = row.verification.o.max_error;
    json["bound"] = row.verification.o.bound;
  }
  if (!f.commit.empty()) json["commit"] = f.commit;
  return json;
}

// Text of `value` where all rows have one; "" where they differ.
template <typename Get>
std::string Common(const std::vector<bench::Row>& rows, const Get& get) {
  for (const bench::Row& row : rows) {
    if (get(row) != get(rows.front())) return "";
  }
  return get(rows.front());
}

std::string InputsText(const bench::Row& row) {
  if (row.input_sets == 1) {
    return absl::StrCat("one set of inputs of ", Bytes(row.set_bytes),
                        row.past_cache ? "" : ", which caches may hold");
  }
  return absl::StrCat(row.input_sets, " sets of inputs of ", Bytes(row.set_bytes), " in turn, ",
                      row.past_cache ? "more than the last-level cache holds"
                                     : "which the last-level cache may hold");
}

}  // namespace

void PrintBench(const std::vector<bench::Row>& rows, const BenchReport& f, const Streams& streams) {
  std::vector<std::string> lines;
  for (const bench::Row& row : rows) lines.push_back(row.plan.problem.ToString());
  const CommonKeys problems = SplitCommon(lines);
  const bool one_problem =
      Common(rows, [](const bench::Row& r) { return r.plan.problem.ToString(); }) == lines.front();
  const bool configs = std::any_of(rows.begin(), rows.end(),
                                   [](const bench::Row& row) { return !row.plan.config.empty(); });
  const std::string machine = Common(rows, [](const bench::Row& r) {
    return absl::StrCat(r.plan.device.name, ", ", MachineSummary(r.plan.device));
  });
  const std::string versus = Common(rows, [&](const bench::Row& r) {
    const bench::Row* baseline = BaselineOf(r, rows, f.baseline);
    return baseline == nullptr ? std::string() : baseline->plan.kernel->traits().name;
  });

  std::vector<Table::Column> columns;
  if (!one_problem) columns.push_back({"problem", Table::kLeft});
  columns.push_back({"kernel", Table::kLeft});
  if (machine.empty()) columns.push_back({"on", Table::kLeft});
  if (configs) columns.push_back({"config", Table::kLeft});
  for (const char* title : {"median", "p10-p90", "TFLOP/s", "GB/s", "moved GB/s"}) {
    columns.push_back({title, Table::kRight});
  }
  columns.push_back({versus.empty() ? "speed-up" : absl::StrCat("vs ", versus), Table::kRight});
  columns.push_back({"error", Table::kRight});
  columns.push_back({"bound", Table::kRight});
  columns.push_back({"verdict", Table::kLeft});
  Table table(std::move(columns));
  for (size_t i = 0; i < rows.size(); ++i) {
    const bench::Row& row = rows[i];
    std::vector<Table::Cell> cells;
    if (!one_problem) cells.push_back({problems.rests[i]});
    cells.push_back({row.plan.kernel->traits().name});
    if (machine.empty()) cells.push_back({ToString(row.plan.device.device)});
    if (configs) cells.push_back({row.plan.config.ToString()});
    if (!row.status.ok()) {
      for (int k = 0; k < 8; ++k) cells.push_back({"-"});
      cells.push_back({"FAILED", Colour::kRed});
      table.AddRow(std::move(cells));
      continue;
    }
    cells.push_back({Seconds(row.median)});
    cells.push_back({SecondsRange(row.p10, row.p90)});
    cells.push_back({Digits(row.TflopPerSecond())});
    cells.push_back({Digits(row.GbPerSecond())});
    cells.push_back({Digits(row.MovedGbPerSecond())});
    const bench::Row* baseline = BaselineOf(row, rows, f.baseline);
    cells.push_back(
        {baseline == nullptr ? "-" : absl::StrCat(Digits(baseline->median / row.median), "x")});
    cells.push_back({f.verify ? ErrorNumber(row.verification.o.max_error) : "-"});
    cells.push_back({f.verify ? ErrorNumber(row.verification.o.bound) : "-"});
    cells.push_back(!f.verify      ? Table::Cell("not checked", Colour::kYellow)
                    : row.verified ? Table::Cell("ok", Colour::kGreen)
                                   : Table::Cell("WRONG", Colour::kRed));
    table.AddRow(std::move(cells));
  }
  if (!problems.common.empty()) streams.out << problems.common << "\n";
  if (!machine.empty()) streams.out << machine << "\n";
  streams.out << "\n" << table.Markdown(streams.colours);
  int64_t fewest = 0, most = 0;
  for (const bench::Row& row : rows) {
    if (!row.status.ok()) continue;
    fewest = fewest == 0 ? row.repetitions : std::min(fewest, row.repetitions);
    most = std::max(most, row.repetitions);
  }
  if (most > 0) {
    const std::string inputs = Common(rows, InputsText);
    streams.out << "\n"
                << fewest << (fewest == most ? "" : absl::StrCat(" to ", most))
                << " repetitions, kernels in random order; "
                << (inputs.empty() ? "sets of inputs in turn, see --json" : inputs) << ".\n";
  }
  for (const bench::Row& row : rows) {
    if (!row.status.ok()) {
      streams.out << "\n" << row.status.message() << "\n";
    } else if (f.verify && !row.verified) {
      streams.out << "\n" << row.verification.message;
    }
  }
}

std::vector<Json> BenchJson(const std::vector<bench::Row>& rows, const BenchReport& f) {
  const std::string date = UtcNow();
  std::vector<Json> all;
  for (const bench::Row& row : rows) {
    all.push_back(RowJson(row, BaselineOf(row, rows, f.baseline), f, date));
  }
  return all;
}

}  // namespace attnlab::command
