#include "tools/command/profile_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "profiling/ceilings_json.h"
#include "profiling/kernel_name.h"
#include "tools/command/sweep.h"
#include "tools/command/version.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

using profiling::Activity;
using profiling::KernelProfile;
using profiling::LaunchFacts;
using profiling::Value;

// Quantities in the first table. Others have a table of their own.
constexpr absl::string_view kInFirstTable[] = {"hbm_bytes_read", "hbm_bytes_written"};

// A call's work and time, and the card's ceilings per second. All are above 0.
struct RooflinePoint {
  double flops = 0, bytes = 0, seconds = 0;
  double most_flops = 0, most_bytes = 0;

  // The share of the FLOP/s that the roofline allows at this intensity. Above 1 only if a ceiling
  // was measured too low.
  double Fraction() const {
    return flops / seconds / std::min(most_flops, most_bytes * flops / bytes);
  }
};

double Ratio(double a, int64_t b) { return a / static_cast<double>(b); }

// The kernel's place in the roofline, with the bytes that it moved or, if `compulsory`, with those
// that any kernel must move. Nothing if a ceiling or a count is missing.
std::optional<RooflinePoint> PointOf(const ProfileReport& report, const KernelProfile& p,
                                     bool compulsory) {
  if (!report.ceilings || !p.status.ok()) return std::nullopt;
  const auto read = p.Counted("hbm_bytes_read"), written = p.Counted("hbm_bytes_written");
  if (!compulsory && (!read || !written)) return std::nullopt;
  RooflinePoint point;
  point.flops = p.compulsory.flops;
  point.bytes = compulsory ? static_cast<double>(p.compulsory.Bytes()) : *read + *written;
  point.seconds = p.seconds;
  point.most_flops =
      report.ceilings->Flops(p.plan.problem.dtype, p.plan.prepared->MultipliesAsTf32());
  const profiling::Ceilings& c = *report.ceilings;
  const double bytes_read = compulsory ? static_cast<double>(p.compulsory.bytes_read) : *read;
  // Reads and writes have ceilings of their own.
  point.most_bytes =
      point.bytes / (bytes_read / c.hbm_read + (point.bytes - bytes_read) / c.hbm_write);
  for (const double part :
       {point.flops, point.bytes, point.seconds, point.most_flops, point.most_bytes}) {
    if (!(part > 0) || !std::isfinite(part)) return std::nullopt;
  }
  return point;
}

// Models assume that every sequence has the maximum length.
bool HasModel(const KernelProfile& p) { return p.plan.problem.lens == Lengths::kFixed; }

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json LaunchJson(const LaunchFacts& launch) {
  return {{"kernel", profiling::ShortName(launch.name)},
          {"name", launch.name},
          {"grid", launch.grid},
          {"block", launch.block},
          {"registers", launch.registers},
          {"static_shared_bytes", launch.static_shared_bytes},
          {"dynamic_shared_bytes", launch.dynamic_shared_bytes},
          {"local_bytes", launch.local_bytes},
          {"blocks_per_multiprocessor", launch.blocks_per_multiprocessor},
          {"theoretical_occupancy", launch.theoretical_occupancy}};
}

Json ActivityJson(const Activity& activity) {
  return {{"kernel", profiling::ShortName(activity.name)},
          {"begin_seconds", activity.begin},
          {"seconds", activity.seconds}};
}

Json RowJson(const ProfileRow& row, const ProfileReport& report, const std::string& date) {
  const KernelProfile& p = row.profile;
  Json json = {{"problem", p.plan.problem.ToString()},
               {"kernel", p.plan.kernel->traits().name},
               {"config", p.plan.config.ToString()},
               {"verdict", p.status.ok() ? row.verdict : "failed"},
               {"seconds", nullptr},
               {"tflop_per_second", nullptr},
               {"flops", p.compulsory.flops},
               {"compulsory_bytes_read", p.compulsory.bytes_read},
               {"compulsory_bytes_written", p.compulsory.bytes_written},
               {"expected_bytes_read", p.expected.bytes_read},
               {"expected_bytes_written", p.expected.bytes_written},
               {"l2_decides", p.expected.l2_decides},
               {"expected_flops", p.expected.flops},
               {"counted", Json::object()},
               {"ceiling_flops_per_second", nullptr},
               {"fraction_of_roofline", nullptr},
               {"fraction_of_compulsory_roofline", nullptr},
               {"launches", Json::array()},
               {"timeline", Json::array()},
               {"counted_calls", p.counted_calls},
               {"overhead_seconds", p.overhead_seconds},
               {"repetitions", report.repetitions},
               {"seed", report.seed},
               {"lse", report.lse},
               {"commit", report.commit.empty() ? Json(nullptr) : Json(report.commit)},
               {"date", date}};
  if (!HasModel(p)) {
    for (const char* field : {"expected_bytes_read", "expected_bytes_written", "l2_decides"}) {
      json[field] = nullptr;
    }
  }
  if (!p.status.ok()) {
    json["message"] = std::string(p.status.message());
    return json;
  }
  if (!row.remark.empty()) json["message"] = row.remark;
  json["seconds"] = p.seconds;
  json["tflop_per_second"] = Number(p.TflopPerSecond());
  for (const Value& value : p.counted) json["counted"][value.name] = Number(value.value);
  if (const auto point = PointOf(report, p, false)) {
    json["ceiling_flops_per_second"] = point->most_flops;
    json["fraction_of_roofline"] = point->Fraction();
  }
  if (const auto point = PointOf(report, p, true)) {
    json["fraction_of_compulsory_roofline"] = point->Fraction();
  }
  for (const LaunchFacts& launch : p.launches) json["launches"].push_back(LaunchJson(launch));
  for (const Activity& activity : p.timeline) json["timeline"].push_back(ActivityJson(activity));
  return json;
}

std::string Amount(double value, absl::string_view unit) {
  if (!std::isfinite(value)) return "-";
  if (unit == "B") return Bytes(static_cast<int64_t>(value));
  if (unit == "s") return Seconds(value);
  if (unit == "FLOP") return absl::StrCat(Digits(value * 1e-9), " GFLOP");
  return absl::StrCat(Digits(value), unit.empty() ? "" : " ", unit);
}

std::string Times(double ratio) {
  return std::isfinite(ratio) ? absl::StrCat(Digits(ratio), "x") : std::string("-");
}

std::string Percent(const std::optional<RooflinePoint>& point) {
  return point ? absl::StrCat(Digits(100 * point->Fraction()), " %") : std::string("-");
}

std::string NameOf(const ProfileRow& row) {
  const Plan& plan = row.profile.plan;
  return plan.config.empty()
             ? plan.kernel->traits().name
             : absl::StrCat(plan.kernel->traits().name, ":", plan.config.ToString());
}

// Whether writes that fit in the `cache` had not all reached HBM when the call ended. Their ratio
// would then mean nothing.
bool StayedInCache(double counted, int64_t bytes, int64_t cache) {
  return bytes <= cache && Ratio(counted, bytes) < 0.9;
}

// Entries of the first table that need a note.
struct Unexplained {
  bool in_l2 = false, guess = false;
};

// Adds three cells: the counted bytes, their ratio to the model's (in brackets if the model
// guesses), and their ratio to the bytes that any kernel must move.
void AddBytes(const KernelProfile& p, absl::string_view quantity, int64_t expected, bool guess,
              int64_t compulsory, int64_t cache, std::vector<Table::Cell>* cells,
              Unexplained* unexplained) {
  const std::optional<double> counted = p.Counted(quantity);
  const auto times = [&](int64_t bytes) -> std::string {
    if (!StayedInCache(*counted, bytes, cache)) return Times(Ratio(*counted, bytes));
    unexplained->in_l2 = true;
    return "in L2";
  };
  cells->push_back({counted ? Amount(*counted, "B") : "-"});
  if (!counted || !HasModel(p)) {
    cells->push_back({"-"});
  } else if (guess) {
    unexplained->guess = true;
    cells->push_back({absl::StrCat("(", times(expected), ")")});
  } else {
    cells->push_back({times(expected)});
  }
  cells->push_back({counted ? times(compulsory) : "-"});
}

Table Figures(const ProfileReport& report, const CommonKeys& problems, Unexplained* unexplained) {
  const bool several = std::any_of(problems.rests.begin(), problems.rests.end(),
                                   [](const std::string& rest) { return !rest.empty(); });
  std::vector<Table::Column> columns;
  if (several) columns.push_back({"problem", Table::kLeft});
  columns.push_back({"kernel", Table::kLeft});
  double largest = 0;
  for (const ProfileRow& row : report.rows) {
    const double rate = row.profile.status.ok() ? row.profile.TflopPerSecond() * 1e12 : 0;
    if (std::isfinite(rate)) largest = std::max(largest, rate);
  }
  const RateUnit unit = RateUnitFor(largest);
  for (const char* title : {"time", unit.title, "HBM read", "model", "least", "HBM written",
                            "model", "least", "roofline", "least roofline"}) {
    columns.push_back({title, Table::kRight});
  }
  columns.push_back({"verdict", Table::kLeft});
  Table table(std::move(columns));
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const ProfileRow& row = report.rows[i];
    const KernelProfile& p = row.profile;
    std::vector<Table::Cell> cells;
    if (several) cells.push_back({problems.rests[i]});
    cells.push_back({NameOf(row)});
    if (!p.status.ok()) {
      for (int k = 0; k < 10; ++k) cells.push_back({"-"});
      cells.push_back({"FAILED", Colour::kRed});
    } else {
      cells.push_back({Seconds(p.seconds)});
      const double rate = p.TflopPerSecond() * 1e12 * unit.factor;
      cells.push_back({std::isfinite(rate) ? Digits(rate) : "-"});
      AddBytes(p, "hbm_bytes_read", p.expected.bytes_read, p.expected.l2_decides,
               p.compulsory.bytes_read, 0, &cells, unexplained);
      AddBytes(p, "hbm_bytes_written", p.expected.bytes_written, false, p.compulsory.bytes_written,
               p.plan.device.last_level_cache_bytes, &cells, unexplained);
      cells.push_back({Percent(PointOf(report, p, false))});
      cells.push_back({Percent(PointOf(report, p, true))});
      cells.push_back({row.verdict, row.verdict == "ok"      ? Colour::kGreen
                                    : row.verdict == "WRONG" ? Colour::kRed
                                                             : Colour::kYellow});
    }
    table.AddRow(std::move(cells));
  }
  return table;
}

std::string NotesOf(const Unexplained& unexplained) {
  std::string notes;
  if (unexplained.in_l2)
    notes = "in L2: when the call ended, much of so few bytes had not gone to HBM.\n";
  if (unexplained.guess) {
    absl::StrAppend(&notes, "(1.23x): the model guesses; L2 decides how much is read again.\n");
  }
  return notes;
}

// The counters that the first table does not show: a line per counter, a column per row of the
// first table.
std::optional<Table> OtherCounters(const ProfileReport& report, const CommonKeys& problems) {
  std::vector<std::pair<std::string, std::string>> names;  // with units, in order
  std::vector<const ProfileRow*> rows;
  std::vector<std::string> titles;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const ProfileRow& row = report.rows[i];
    if (!row.profile.status.ok() || row.profile.counted.empty()) continue;
    rows.push_back(&row);
    const std::string& problem = problems.rests[i];
    titles.push_back(absl::StrCat(NameOf(row), problem.empty() ? "" : " ", problem));
    for (const Value& value : row.profile.counted) {
      const bool shown = std::find(std::begin(kInFirstTable), std::end(kInFirstTable),
                                   value.name) != std::end(kInFirstTable);
      const auto entry = std::make_pair(value.name, value.unit);
      if (!shown && std::find(names.begin(), names.end(), entry) == names.end()) {
        names.push_back(entry);
      }
    }
  }
  if (names.empty()) return std::nullopt;
  std::vector<Table::Column> columns = {{"counted", Table::kLeft}};
  for (const std::string& title : titles) columns.push_back({title, Table::kRight});
  Table table(std::move(columns));
  for (const auto& [name, unit] : names) {
    std::vector<Table::Cell> cells = {{name}};
    for (const ProfileRow* row : rows) {
      const std::optional<double> value = row->profile.Counted(name);
      cells.push_back({value ? Amount(*value, unit) : "-"});
    }
    table.AddRow(std::move(cells));
  }
  return table;
}

bool HasRange(const ProfileReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(), [](const ProfileRow& row) {
    return row.profile.Counted("range_duration").has_value();
  });
}

std::string Dimensions(const std::array<int64_t, 3>& d) { return absl::StrJoin(d, "x"); }

// The kernels of one call, with their times and the gaps before them.
Table Launches(const KernelProfile& p) {
  Table table({{"launch", Table::kLeft},
               {"time", Table::kRight},
               {"gap before", Table::kRight},
               {"grid", Table::kRight},
               {"block", Table::kRight},
               {"registers", Table::kRight},
               {"shared", Table::kRight},
               {"local", Table::kRight},
               {"blocks/SM", Table::kRight},
               {"occupancy", Table::kRight}});
  size_t next = 0;  // next entry of p.launches
  double end = 0;
  for (const Activity& activity : p.timeline) {
    std::vector<Table::Cell> cells = {{profiling::ShortName(activity.name)},
                                      {Seconds(activity.seconds)},
                                      {Seconds(std::max(0.0, activity.begin - end))}};
    end = std::max(end, activity.begin + activity.seconds);
    // p.launches has the order of the timeline. A kernel that is not its next entry gets no facts.
    if (activity.kind == Activity::Kind::kKernel && next < p.launches.size() &&
        p.launches[next].name == activity.name) {
      const LaunchFacts& launch = p.launches[next++];
      cells.push_back({Dimensions(launch.grid)});
      cells.push_back({Dimensions(launch.block)});
      cells.push_back({absl::StrCat(launch.registers)});
      cells.push_back({Bytes(launch.static_shared_bytes + launch.dynamic_shared_bytes)});
      cells.push_back({absl::StrCat(launch.local_bytes, " B")});
      cells.push_back({absl::StrCat(launch.blocks_per_multiprocessor)});
      cells.push_back({absl::StrCat(Digits(100 * launch.theoretical_occupancy), " %")});
    }
    table.AddRow(std::move(cells));
  }
  return table;
}

std::string CeilingsText(const profiling::Ceilings& c) {
  const auto tera = [](double value) { return value > 0 ? Digits(value * 1e-12) : "-"; };
  return absl::StrCat("Ceilings: HBM read ", tera(c.hbm_read), ", write ", tera(c.hbm_write),
                      ", copy ", tera(c.hbm_copy), " TB/s; bf16 ", tera(c.bf16), ", fp16 ",
                      tera(c.fp16), ", TF32 ", tera(c.tf32), ", fp8 ", tera(c.fp8),
                      ", fp32 on CUDA cores ", tera(c.fp32), " TFLOP/s.\n");
}

}  // namespace

Json ProfileJson(const ProfileReport& report) {
  const std::string date = UtcNow();
  Json rows = Json::array();
  for (const ProfileRow& row : report.rows) rows.push_back(RowJson(row, report, date));
  return {{"command", "profile"},
          {"attnlab", AttnlabJson(report.commit)},
          {"machine", MachineJson(report.rows[0].profile.plan.device)},
          {"chip", report.chip.empty() ? Json(nullptr) : Json(report.chip)},
          {"ceilings", report.ceilings ? JsonOf(*report.ceilings) : Json(nullptr)},
          {"rows", rows}};
}

void PrintProfile(const ProfileReport& report, const Streams& streams) {
  std::vector<std::string> lines;
  for (const ProfileRow& row : report.rows) lines.push_back(row.profile.plan.problem.ToString());
  const CommonKeys problems = SplitCommon(lines);
  const DeviceInfo& device = report.rows[0].profile.plan.device;
  if (!problems.common.empty()) streams.out << problems.common << "\n";
  streams.out << device.name << ", " << MachineSummary(device)
              << (report.chip.empty() ? "" : ", " + report.chip) << "\n\n";
  Unexplained unexplained;
  streams.out << Figures(report, problems, &unexplained).Text(streams.colours, streams.columns);
  if (const std::string notes = NotesOf(unexplained); !notes.empty()) streams.out << "\n" << notes;
  if (report.ceilings) streams.out << "\n" << CeilingsText(*report.ceilings);
  if (const std::optional<Table> others = OtherCounters(report, problems)) {
    streams.out << "\n" << others->Text(streams.colours, streams.columns);
    if (HasRange(report)) {
      streams.out
          << "range_duration is of the counted call from outside, with launching and at the "
             "clock that counters run with: not the time above.\n";
    }
  }
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const ProfileRow& row = report.rows[i];
    if (row.profile.timeline.empty()) continue;
    streams.out << "\n" << NameOf(row);
    if (!problems.rests[i].empty()) streams.out << " (" << problems.rests[i] << ")";
    streams.out << "\n" << Launches(row.profile).Text(streams.colours, streams.columns);
  }
  for (const ProfileRow& row : report.rows) {
    const std::string message =
        row.profile.status.ok() ? row.remark : std::string(row.profile.status.message());
    if (!message.empty()) streams.out << "\n" << message << "\n";
  }
}

}  // namespace attnlab::command
