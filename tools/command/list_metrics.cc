#include "tools/command/list_metrics.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "profiling/quantities.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"
#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {
namespace {

using profiling::Chip;
using profiling::Counted;

std::string MeaningOf(const Chip& chip, const Counted& counted) {
  for (const profiling::Quantity& q : profiling::Quantities()) {
    if (q.name == counted.name) return std::string(q.meaning);
  }
  return chip.Description(counted.name).value_or("");
}

std::string PassesText(int64_t passes) {
  return absl::StrCat(passes, passes == 1 ? " pass" : " passes");
}

// Metrics that are counted together: as a table and as an entry of the JSON.
struct Listing {
  Table table;
  Json json;
  int64_t passes;
};

absl::StatusOr<Listing> ListingOf(const Chip& chip, absl::string_view set,
                                  const std::vector<std::string>& metrics) {
  if (absl::Status s = CheckCountable(chip, metrics); !s.ok()) return s;
  const absl::StatusOr<std::vector<Counted>> counted = Resolve(chip, set, metrics);
  if (!counted.ok()) return counted.status();
  const absl::StatusOr<int64_t> passes = chip.Passes(MetricsOf(*counted));
  if (!passes.ok()) return passes.status();
  Table table({{set.empty() ? "counted" : absl::StrCat("set ", set), Table::kLeft},
               {"unit", Table::kLeft},
               {"metrics", Table::kLeft},
               {"meaning", Table::kLeft}});
  Json quantities = Json::array();
  for (const Counted& c : *counted) {
    const std::string meaning = MeaningOf(chip, c);
    table.AddRow({{c.name}, {c.unit}, {absl::StrJoin(c.metrics, " + ")}, {meaning}});
    quantities.push_back(
        {{"name", c.name}, {"unit", c.unit}, {"metrics", c.metrics}, {"meaning", meaning}});
  }
  Json json = {{"set", set.empty() ? Json(nullptr) : Json(set)},
               {"passes", *passes},
               {"quantities", quantities}};
  return Listing{std::move(table), std::move(json), *passes};
}

// The metrics whose names contain `text`, by base name. Base names without any are left out.
absl::StatusOr<std::vector<std::pair<std::string, std::vector<std::string>>>> NamesWith(
    const Chip& chip, const std::string& text) {
  const absl::StatusOr<std::vector<std::string>> bases = chip.BaseNames();
  if (!bases.ok()) return bases.status();
  std::vector<std::pair<std::string, std::vector<std::string>>> found;
  for (const std::string& base : *bases) {
    absl::StatusOr<std::vector<std::string>> names = chip.MetricsOf(base, text);
    if (!names.ok()) return names.status();
    if (!names->empty()) found.emplace_back(base, *std::move(names));
  }
  return found;
}

// A table that is printed line by line: only the width of its first column is known beforehand.
class Lines {
 public:
  Lines(size_t width, std::ostream& out) : width_(width), out_(out) {
    Add("metric", "passes", "meaning");
    out_ << "|:" << std::string(width_ + 1, '-') << "|-------:|:--------|\n";
  }

  void Add(const std::string& metric, const std::string& passes, const std::string& meaning) {
    const auto blanks = [](size_t width, const std::string& text) {
      return std::string(width > text.size() ? width - text.size() : 0, ' ');
    };
    out_ << "| " << metric << blanks(width_, metric) << " | " << blanks(6, passes) << passes
         << " | " << absl::StrReplaceAll(meaning, {{"|", "\\|"}}) << " |\n";
  }

 private:
  size_t width_;
  std::ostream& out_;
};

}  // namespace

absl::Status CheckCountable(const Chip& chip, const std::vector<std::string>& metrics) {
  for (const std::string& metric : metrics) {
    const absl::Status s = chip.Passes({metric}).status();
    if (absl::IsUnimplemented(s)) {
      return absl::UnimplementedError(absl::StrCat("metric: CUPTI has the name ", metric, " for ",
                                                   chip.name(), ", but cannot count it"));
    }
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ListSets(const Chip& chip, bool as_json, const Streams& streams) {
  Json sets = Json::array();
  for (const absl::string_view set : profiling::Sets()) {
    absl::StatusOr<Listing> listing = ListingOf(chip, set, {});
    if (!listing.ok()) return listing.status();
    sets.push_back(std::move(listing->json));
    if (as_json) continue;
    // The quantities of "all" have been shown set by set.
    if (set != "all") streams.out << listing->table.Text(streams.colours, streams.columns);
    streams.out << set << ": " << PassesText(listing->passes) << "\n\n";
  }
  if (as_json) streams.out << Dump({{"chip", chip.name()}, {"sets", sets}});
  return absl::OkStatus();
}

absl::Status ListSelected(const Chip& chip, absl::string_view set,
                          const std::vector<std::string>& metrics, bool as_json,
                          const Streams& streams) {
  absl::StatusOr<Listing> listing = ListingOf(chip, set, metrics);
  if (!listing.ok()) return listing.status();
  if (as_json) {
    streams.out << Dump({{"chip", chip.name()}, {"sets", {std::move(listing->json)}}});
  } else {
    streams.out << listing->table.Text(streams.colours, streams.columns)
                << "together: " << PassesText(listing->passes) << "\n";
  }
  return absl::OkStatus();
}

absl::Status ListMatching(const Chip& chip, const std::string& match, bool as_json,
                          const Streams& streams) {
  // The names come first, for the progress line and the width of the first column.
  const auto found = NamesWith(chip, match);
  if (!found.ok()) return found.status();
  if (found->empty()) {
    return absl::NotFoundError(
        absl::StrCat("--match: no metric of ", chip.name(), " has \"", match, "\" in its name"));
  }
  size_t width = 0;
  for (const auto& [base, names] : *found) {
    for (const std::string& name : names) width = std::max(width, name.size());
  }
  Progress progress(stderr, static_cast<int64_t>(found->size()));
  int64_t done = 0;
  std::optional<Lines> lines;
  if (!as_json) lines.emplace(width, streams.out);
  Json metrics = Json::array();
  const auto add = [&](const Chip::Family& family) {
    progress.Clear();
    for (const auto& [name, passes] : family.metrics) {
      if (lines) {
        lines->Add(name, passes ? absl::StrCat(*passes) : "-", family.description);
      } else {
        metrics.push_back({{"metric", name},
                           {"passes", passes ? Json(*passes) : Json(nullptr)},
                           {"meaning", family.description}});
      }
    }
    if (lines) streams.out.flush();
    progress.Show(++done, family.base_name);
    // Stop when the reader of a pipe has gone, as in `| head`.
    return !Interrupt::Pressed() && streams.out.good();
  };
  if (absl::Status s = chip.ForEachFamily(match, add); !s.ok()) return s;
  progress.Clear();
  if (as_json) streams.out << Dump({{"chip", chip.name()}, {"metrics", metrics}});
  return Interrupt::Pressed() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

}  // namespace attnlab::command
