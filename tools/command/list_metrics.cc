#include "tools/command/list_metrics.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "profiling/chip.h"
#include "profiling/quantities.h"
#include "tools/command/json.h"
#include "tools/table.h"

namespace attnlab::command {
namespace {

using profiling::Chip;
using profiling::Counted;

std::string MeaningOf(const std::string& name) {
  for (const profiling::Quantity& q : profiling::Quantities()) {
    if (q.name == name) return std::string(q.meaning);
  }
  return "";
}

absl::Status ListSets(const Chip& chip, bool as_json, const Streams& streams) {
  Json sets = Json::array();
  for (const absl::string_view set : profiling::Sets()) {
    const absl::StatusOr<std::vector<Counted>> counted = Resolve(chip, set);
    if (!counted.ok()) return counted.status();
    const absl::StatusOr<int64_t> passes = chip.Passes(MetricsOf(*counted));
    if (!passes.ok()) return passes.status();
    Table table({{set == "all" ? "all" : absl::StrCat("set ", set), Table::kLeft},
                 {"unit", Table::kLeft},
                 {"metrics", Table::kLeft},
                 {"meaning", Table::kLeft}});
    Json quantities = Json::array();
    for (const Counted& c : *counted) {
      table.AddRow({{c.name}, {c.unit}, {absl::StrJoin(c.metrics, " + ")}, {MeaningOf(c.name)}});
      quantities.push_back({{"name", c.name},
                            {"unit", c.unit},
                            {"metrics", c.metrics},
                            {"meaning", MeaningOf(c.name)}});
    }
    sets.push_back({{"set", set}, {"passes", *passes}, {"quantities", quantities}});
    if (as_json) continue;
    // All sets together have been shown one by one.
    if (set != "all") streams.out << table.Markdown(streams.colours);
    streams.out << set << ": " << *passes << (*passes == 1 ? " pass\n\n" : " passes\n\n");
  }
  if (as_json) streams.out << Dump({{"chip", chip.name()}, {"sets", sets}});
  return absl::OkStatus();
}

absl::Status ListMatching(const Chip& chip, const std::string& match, bool as_json,
                          const Streams& streams) {
  const absl::StatusOr<std::vector<std::string>> bases = chip.BaseNames();
  if (!bases.ok()) return bases.status();
  Table table({{"metric", Table::kLeft}, {"passes", Table::kRight}, {"meaning", Table::kLeft}});
  Json metrics = Json::array();
  for (const std::string& base : *bases) {
    const absl::StatusOr<std::vector<std::string>> all = chip.MetricsOf(base);
    if (!all.ok()) return all.status();
    for (const std::string& metric : *all) {
      if (!absl::StrContains(metric, match)) continue;
      const absl::StatusOr<int64_t> passes = chip.Passes({metric});
      // Some names that CUPTI lists cannot be collected.
      const std::string shown = passes.ok() ? absl::StrCat(*passes) : "-";
      const std::string meaning = chip.Description(base).value_or("");
      table.AddRow({{metric}, {shown}, {meaning}});
      metrics.push_back({{"metric", metric},
                         {"passes", passes.ok() ? Json(*passes) : Json(nullptr)},
                         {"meaning", meaning}});
    }
  }
  if (metrics.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--match: no metric of ", chip.name(), " has \"", match, "\" in its name"));
  }
  if (as_json) {
    streams.out << Dump({{"chip", chip.name()}, {"metrics", metrics}});
  } else {
    streams.out << table.Markdown(streams.colours);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ListMetrics(const std::string& chip_name, const std::string& match, bool json,
                         const Streams& streams) {
  const absl::StatusOr<Chip> chip = Chip::Open(chip_name);
  if (!chip.ok()) return chip.status();
  return match.empty() ? ListSets(*chip, json, streams) : ListMatching(*chip, match, json, streams);
}

}  // namespace attnlab::command
