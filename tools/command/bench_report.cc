#include "tools/command/bench_report.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/core/device.h"
#include "tools/command/sweep.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

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

// What get() says of all rows where they agree; "" where they differ.
template <typename Rows, typename Get>
std::string Common(const Rows& rows, const Get& get) {
  const std::string first = get(*rows.begin());
  for (const auto& row : rows) {
    if (get(row) != first) return "";
  }
  return first;
}

std::string DeviceOfRow(const bench::Row& row) { return ToString(row.plan.device.device); }
std::string ProblemOfRow(const bench::Row& row) { return row.plan.problem.ToString(); }

// The devices of the rows, in the order of their first.
std::vector<DeviceInfo> DevicesOf(const std::vector<bench::Row>& rows) {
  std::vector<DeviceInfo> devices;
  for (const bench::Row& row : rows) {
    const bool known = std::any_of(devices.begin(), devices.end(), [&row](const DeviceInfo& d) {
      return d.device == row.plan.device.device;
    });
    if (!known) devices.push_back(row.plan.device);
  }
  return devices;
}

// Rows of one problem and one kernel, which differ by their configuration.
struct Sweep {
  std::vector<const bench::Row*> rows;  // those that were timed and are not known to be wrong
  const bench::Row* fastest = nullptr;
  const bench::Row* slowest = nullptr;
};

// The sweep that the row belongs to; no rows where it has one configuration alone.
Sweep SweepOf(const bench::Row& row, const std::vector<bench::Row>& rows, bool verify) {
  Sweep sweep;
  for (const bench::Row& other : rows) {
    if (other.plan.kernel != row.plan.kernel || other.plan.problem != row.plan.problem) continue;
    if (!other.status.ok() || (verify && !other.verified)) continue;
    sweep.rows.push_back(&other);
    if (sweep.fastest == nullptr || other.median < sweep.fastest->median) sweep.fastest = &other;
    if (sweep.slowest == nullptr || other.median > sweep.slowest->median) sweep.slowest = &other;
  }
  if (sweep.rows.size() < 2) sweep = {};
  return sweep;
}

Json RowJson(const bench::Row& row, const std::vector<bench::Row>& rows, const BenchReport& f,
             const std::string& date) {
  const bench::Row* baseline = BaselineOf(row, rows, f.baseline);
  const Sweep sweep = SweepOf(row, rows, f.verify);
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
               {"fastest_config", nullptr},
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
  if (sweep.fastest != nullptr) json["fastest_config"] = sweep.fastest == &row;
  if (f.verify && row.status.ok()) {
    json["error"] = row.verification.o.max_error;
    json["bound"] = row.verification.o.bound;
  }
  if (!f.commit.empty()) json["commit"] = f.commit;
  return json;
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

// The cells from the median on.
void AddFigures(const bench::Row& row, const std::vector<bench::Row>& rows, const BenchReport& f,
                std::vector<Table::Cell>* cells) {
  if (!row.status.ok()) {
    for (int k = 0; k < 8; ++k) cells->push_back({"-"});
    cells->push_back({"FAILED", Colour::kRed});
    return;
  }
  cells->push_back({Seconds(row.median)});
  cells->push_back({SecondsRange(row.p10, row.p90)});
  cells->push_back({Digits(row.TflopPerSecond())});
  cells->push_back({Digits(row.GbPerSecond())});
  cells->push_back({Digits(row.MovedGbPerSecond())});
  const bench::Row* baseline = BaselineOf(row, rows, f.baseline);
  cells->push_back(
      {baseline == nullptr ? "-" : absl::StrCat(Digits(baseline->median / row.median), "x")});
  cells->push_back({f.verify ? ErrorNumber(row.verification.o.max_error) : "-"});
  cells->push_back({f.verify ? ErrorNumber(row.verification.o.bound) : "-"});
  cells->push_back(!f.verify      ? Table::Cell("not checked", Colour::kYellow)
                   : row.verified ? Table::Cell("ok", Colour::kGreen)
                                  : Table::Cell("WRONG", Colour::kRed));
}

// "32 sets of inputs …", for each device where they differ.
std::string InputsOfDevices(const std::vector<bench::Row>& timed) {
  const std::vector<DeviceInfo> devices = DevicesOf(timed);
  const std::string all = Common(timed, InputsText);
  if (!all.empty()) return all;
  std::vector<std::string> parts;
  for (const DeviceInfo& device : devices) {
    std::vector<bench::Row> rows;
    for (const bench::Row& row : timed) {
      if (row.plan.device.device == device.device) rows.push_back(row);
    }
    std::string text = Common(rows, InputsText);
    if (text.empty()) text = "sets of inputs in turn, see --json";
    parts.push_back(devices.size() == 1 ? text
                                        : absl::StrCat("on ", ToString(device.device), " ", text));
  }
  return absl::StrJoin(parts, "; ");
}

// How often, in which order, on what. "" where nothing was timed.
std::string HowText(const std::vector<bench::Row>& rows) {
  std::vector<bench::Row> timed;
  for (const bench::Row& row : rows) {
    if (row.status.ok()) timed.push_back(row);
  }
  if (timed.empty()) return "";
  int64_t fewest = timed[0].repetitions, most = 0;
  for (const bench::Row& row : timed) {
    fewest = std::min(fewest, row.repetitions);
    most = std::max(most, row.repetitions);
  }
  const bool several = DevicesOf(timed).size() > 1;
  return absl::StrCat(
      fewest, fewest == most ? "" : absl::StrCat(" to ", most),
      most == 1 ? " repetition, " : " repetitions, ",
      several ? "kernels of a device in random order; " : "kernels in random order; ",
      InputsOfDevices(timed), ".");
}

// One line a kernel and problem that was timed with several configurations.
std::string SweepText(const std::vector<bench::Row>& rows, const std::vector<std::string>& rests,
                      bool verify) {
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sweep sweep = SweepOf(rows[i], rows, verify);
    if (sweep.fastest == nullptr || sweep.rows[0] != &rows[i]) continue;
    const auto config = [](const bench::Row& row) {
      return row.plan.config.empty() ? std::string("its own choice") : row.plan.config.ToString();
    };
    absl::StrAppend(&text, rows[i].plan.kernel->traits().name,
                    rests[i].empty() ? "" : absl::StrCat(" (", rests[i], ")"), ": fastest with ",
                    config(*sweep.fastest), ", ",
                    Digits(sweep.slowest->median / sweep.fastest->median),
                    " times as fast as with ", config(*sweep.slowest), "\n");
  }
  return text;
}

}  // namespace

void PrintBench(const std::vector<bench::Row>& rows, const BenchReport& f, const Streams& streams) {
  std::vector<std::string> lines;
  for (const bench::Row& row : rows) lines.push_back(ProblemOfRow(row));
  const CommonKeys problems = SplitCommon(lines);
  const bool one_problem = !Common(rows, ProblemOfRow).empty();
  const bool configs = std::any_of(rows.begin(), rows.end(),
                                   [](const bench::Row& row) { return !row.plan.config.empty(); });
  const std::vector<DeviceInfo> devices = DevicesOf(rows);
  const std::string versus = Common(rows, [&](const bench::Row& r) {
    const bench::Row* baseline = BaselineOf(r, rows, f.baseline);
    return baseline == nullptr ? std::string() : baseline->plan.kernel->traits().name;
  });

  std::vector<Table::Column> columns;
  if (!one_problem) columns.push_back({"problem", Table::kLeft});
  columns.push_back({"kernel", Table::kLeft});
  if (devices.size() > 1) columns.push_back({"device", Table::kLeft});
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
    if (devices.size() > 1) cells.push_back({DeviceOfRow(row)});
    if (configs) cells.push_back({row.plan.config.ToString()});
    AddFigures(row, rows, f, &cells);
    table.AddRow(std::move(cells));
  }
  if (!problems.common.empty()) streams.out << problems.common << "\n";
  for (const DeviceInfo& info : devices) {
    if (devices.size() > 1) streams.out << ToString(info.device) << ": ";
    streams.out << info.name << ", " << MachineSummary(info) << "\n";
  }
  streams.out << "\n" << table.Markdown(streams.colours);
  if (const std::string how = HowText(rows); !how.empty()) streams.out << "\n" << how << "\n";
  streams.out << SweepText(rows, problems.rests, f.verify);
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
    all.push_back(RowJson(row, rows, f, date));
  }
  return all;
}

}  // namespace attnlab::command
