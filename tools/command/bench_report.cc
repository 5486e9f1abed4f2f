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

// The row that the speed-up of `row` is against: the first of its problem, or the baseline's.
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

// The value of get() if it is the same for all rows; otherwise "".
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

// The devices of the rows, in the order in which they appear.
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
  // The fastest row, and the rows that are equal to it within the noise.
  std::vector<const bench::Row*> fastest;
  const bench::Row* slowest = nullptr;
  const bench::Row* first = nullptr;  // in the table

  bool Has(const bench::Row& row) const {
    return std::find(fastest.begin(), fastest.end(), &row) != fastest.end();
  }
};

// The sweep that the row belongs to; empty if the kernel has only one configuration. Rows that
// failed or are wrong do not count.
Sweep SweepOf(const bench::Row& row, const std::vector<bench::Row>& rows, bool verify) {
  std::vector<const bench::Row*> all;
  for (const bench::Row& other : rows) {
    if (other.plan.kernel != row.plan.kernel || other.plan.problem != row.plan.problem) continue;
    if (other.status.ok() && (!verify || other.verified)) all.push_back(&other);
  }
  if (all.size() < 2) return {};
  Sweep sweep;
  const auto faster = [](const bench::Row* a, const bench::Row* b) {
    return a->timing.median < b->timing.median;
  };
  const auto [fastest, slowest] = std::minmax_element(all.begin(), all.end(), faster);
  sweep.first = all[0];
  sweep.slowest = *slowest;
  sweep.fastest = {*fastest};
  for (const bench::Row* other : all) {
    if (other != *fastest && !Differ(other->timing, (*fastest)->timing)) {
      sweep.fastest.push_back(other);
    }
  }
  return sweep;
}

// Why a row is noisy; "" if unknown.
std::string CauseOfNoise(const bench::Row& row) {
  if (row.processors.Busy()) {
    return absl::StrCat("other programs used ", Digits(row.processors.others), " of ",
                        row.processors.available, " processors");
  }
  return "";
}

// Models are of equal lengths.
bool HasModel(const bench::Row& row) { return row.plan.problem.lens == Lengths::kFixed; }

Json RowJson(const bench::Row& row, const std::vector<bench::Row>& rows, const BenchReport& f,
             const std::string& date) {
  const bench::Row* baseline = BaselineOf(row, rows, f.baseline);
  const Sweep sweep = SweepOf(row, rows, f.verify);
  Json json = {{"problem", row.plan.problem.ToString()},
               {"kernel", row.plan.kernel->traits().name},
               {"config", row.plan.config.ToString()},
               {"machine", MachineJson(row.plan.device)},
               {"median_seconds", row.timing.median},
               {"p10_seconds", row.timing.p10},
               {"p90_seconds", row.timing.p90},
               {"noise", row.timing.noise},
               {"noisy", row.noisy},
               {"noise_cause", nullptr},
               {"repetitions", row.timing.repetitions},
               {"disturbed_repetitions", row.timing.disturbed},
               {"calls_per_repetition", row.calls_per_repetition},
               {"tflop_per_second", row.TflopPerSecond()},
               {"gb_per_second", row.GbPerSecond()},
               {"moved_gb_per_second", row.MovedGbPerSecond()},
               {"flops", row.compulsory.flops},
               {"compulsory_bytes", row.compulsory.Bytes()},
               {"expected_bytes", row.expected.Bytes()},
               {"baseline", nullptr},
               {"speed_up", nullptr},
               {"speed_up_within_noise", nullptr},
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
  if (!HasModel(row)) json["moved_gb_per_second"] = json["expected_bytes"] = nullptr;
  if (!row.status.ok()) {
    json["verdict"] = "failed";
    json["message"] = std::string(row.status.message());
    for (const char* key : {"median_seconds", "p10_seconds", "p90_seconds", "noise", "noisy",
                            "tflop_per_second", "gb_per_second", "moved_gb_per_second"}) {
      json[key] = nullptr;
    }
    baseline = nullptr;
  }
  if (baseline != nullptr) {
    json["baseline"] = baseline->plan.kernel->traits().name;
    json["speed_up"] = baseline->timing.median / row.timing.median;
    json["speed_up_within_noise"] = baseline != &row && !Differ(baseline->timing, row.timing);
  }
  // Null for the fastest rows if there are several within the noise.
  if (sweep.first != nullptr && (!sweep.Has(row) || sweep.fastest.size() == 1)) {
    json["fastest_config"] = sweep.Has(row);
  }
  if (row.noisy && !CauseOfNoise(row).empty()) json["noise_cause"] = CauseOfNoise(row);
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

std::string Percent(double share) { return absl::StrCat(Digits(100 * share), " %"); }

// "1.25x", or "~1.02x" for two rows that are equal within the noise.
std::string SpeedUp(const bench::Row* baseline, const bench::Row& row) {
  if (baseline == nullptr) return "-";
  const bool differ = baseline == &row || Differ(baseline->timing, row.timing);
  return absl::StrCat(differ ? "" : "~", Digits(baseline->timing.median / row.timing.median), "x");
}

RateUnit UnitOf(const std::vector<bench::Row>& rows) {
  double largest = 0;
  for (const bench::Row& row : rows) {
    if (row.status.ok()) largest = std::max(largest, 1e12 * row.TflopPerSecond());
  }
  return RateUnitFor(largest);
}

// Adds the cells from the median on.
void AddFigures(const bench::Row& row, const std::vector<bench::Row>& rows, const BenchReport& f,
                const RateUnit& unit, std::vector<Table::Cell>* cells) {
  if (!row.status.ok()) {
    for (int k = 0; k < 9; ++k) cells->push_back({"-"});
    cells->push_back({"FAILED", Colour::kRed});
    return;
  }
  cells->push_back({Seconds(row.timing.median)});
  cells->push_back(
      {absl::StrCat("±", Percent(row.timing.noise)), row.noisy ? Colour::kYellow : Colour::kNone});
  cells->push_back({SecondsRange(row.timing.p10, row.timing.p90)});
  cells->push_back({Digits(unit.factor * 1e12 * row.TflopPerSecond())});
  cells->push_back({Digits(row.GbPerSecond())});
  cells->push_back({HasModel(row) ? Digits(row.MovedGbPerSecond()) : "-"});
  const bench::Row* baseline = BaselineOf(row, rows, f.baseline);
  cells->push_back({SpeedUp(baseline, row)});
  cells->push_back({f.verify ? ErrorNumber(row.verification.o.max_error) : "-"});
  cells->push_back({f.verify ? ErrorNumber(row.verification.o.bound) : "-"});
  cells->push_back(!f.verify      ? Table::Cell("not checked", Colour::kYellow)
                   : row.verified ? Table::Cell("ok", Colour::kGreen)
                                  : Table::Cell("WRONG", Colour::kRed));
}

// "32 sets of inputs …", per device if the devices differ.
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

// Repetitions, their order, and the inputs. "" if nothing was timed.
std::string HowText(const std::vector<bench::Row>& rows) {
  std::vector<bench::Row> timed;
  for (const bench::Row& row : rows) {
    if (row.status.ok()) timed.push_back(row);
  }
  if (timed.empty()) return "";
  int64_t fewest = timed[0].timing.repetitions, most = 0;
  for (const bench::Row& row : timed) {
    fewest = std::min(fewest, row.timing.repetitions);
    most = std::max(most, row.timing.repetitions);
  }
  const bool several = DevicesOf(timed).size() > 1;
  return absl::StrCat(
      fewest, fewest == most ? "" : absl::StrCat(" to ", most),
      most == 1 ? " repetition, " : " repetitions, ",
      several ? "kernels of a device in random order; " : "kernels in random order; ",
      InputsOfDevices(timed), ".");
}

// The kernels whose noise is above the limit, and the cause.
std::string NoisyText(const std::vector<bench::Row>& rows, double max_noise) {
  std::vector<std::string> names, causes;
  for (const bench::Row& row : rows) {
    if (!row.status.ok() || !row.noisy) continue;
    const std::string& name = row.plan.kernel->traits().name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (causes.empty() && !CauseOfNoise(row).empty()) causes.push_back(CauseOfNoise(row));
  }
  if (names.empty()) return "";
  std::string text = absl::StrCat("Noisy, the median is not known to ", Percent(max_noise), ": ",
                                  absl::StrJoin(names, ", "), ".");
  if (!causes.empty()) {
    absl::StrAppend(&text, " While they were timed, ", causes[0],
                    ". Threads that wait for each other then spin for nothing. "
                    "OMP_WAIT_POLICY=passive makes them sleep, which slows short calls down.");
  }
  return absl::StrCat(text, " --timeout=SECONDS measures longer.\n");
}

// One line for each kernel and problem that was timed with several configurations.
std::string SweepText(const std::vector<bench::Row>& rows, const std::vector<std::string>& rests,
                      bool verify) {
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sweep sweep = SweepOf(rows[i], rows, verify);
    if (sweep.first != &rows[i]) continue;
    const auto config = [](const bench::Row& row) {
      return row.plan.config.empty() ? std::string("its own choice") : row.plan.config.ToString();
    };
    absl::StrAppend(&text, rows[i].plan.kernel->traits().name,
                    rests[i].empty() ? "" : absl::StrCat(" (", rests[i], ")"), ": ");
    if (sweep.Has(*sweep.slowest)) {
      absl::StrAppend(&text, "no configuration is faster than the others beyond the noise\n");
      continue;
    }
    absl::StrAppend(&text, "fastest with ",
                    absl::StrJoin(sweep.fastest, " or ",
                                  [&](std::string* out, const bench::Row* row) {
                                    absl::StrAppend(out, config(*row));
                                  }),
                    sweep.fastest.size() == 1 ? "" : " (equal within the noise)", ", ",
                    Digits(sweep.slowest->timing.median / sweep.fastest[0]->timing.median),
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
  const RateUnit unit = UnitOf(rows);
  for (const char* title : {"median", "noise", "p10-p90", unit.title, "GB/s", "moved GB/s"}) {
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
    AddFigures(row, rows, f, unit, &cells);
    table.AddRow(std::move(cells));
  }
  if (!problems.common.empty()) streams.out << problems.common << "\n";
  for (const DeviceInfo& info : devices) {
    if (devices.size() > 1) streams.out << ToString(info.device) << ": ";
    streams.out << info.name << ", " << MachineSummary(info) << "\n";
  }
  streams.out << "\n" << table.Text(streams.colours, streams.columns);
  if (const std::string how = HowText(rows); !how.empty()) streams.out << "\n" << how << "\n";
  streams.out << NoisyText(rows, f.max_noise) << SweepText(rows, problems.rests, f.verify);
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
