#include "tools/command/sweep.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace attnlab {
namespace {

absl::Status Invalid(absl::string_view key, absl::string_view value, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": \"", value, "\" ", why));
}

// Whether values of the problem's key are integers. In configurations, every key may have them.
bool IsCount(absl::string_view key) {
  for (absl::string_view k : {"b", "hq", "hkv", "sq", "skv", "d", "dv", "page"}) {
    if (k == key) return true;
  }
  return false;
}

// Adds the values that one item of a list stands for.
absl::Status ExpandValue(absl::string_view key, absl::string_view text, bool is_count,
                         std::vector<std::string>* values) {
  if (text.empty()) return Invalid(key, text, "in a list is empty");
  const size_t dots = text.find("..");
  if (dots == absl::string_view::npos) {
    // The parser of the line rejects a bad value, because it knows the limits of each key.
    const absl::StatusOr<int64_t> count = ParseCount(text);
    values->push_back(is_count && count.ok() ? absl::StrCat(*count) : std::string(text));
    return absl::OkStatus();
  }
  if (!is_count) return Invalid(key, text, "is a range, which only integers have");
  const absl::StatusOr<int64_t> low = ParseCount(text.substr(0, dots));
  const absl::StatusOr<int64_t> high = ParseCount(text.substr(dots + 2));
  if (!low.ok() || !high.ok()) return Invalid(key, text, "is not a range LOW..HIGH of integers");
  if (*low < 1) return Invalid(key, text, "begins below 1, which doubling does not leave");
  if (*high < *low) return Invalid(key, text, "ends before it begins");
  for (int64_t value = *low; value <= *high; value *= 2) values->push_back(absl::StrCat(value));
  return absl::OkStatus();
}

// What a line describes ("problem", "problems"), and the maximum number of combinations.
struct Rules {
  absl::string_view one, many;
  int64_t most;
  bool (*is_count)(absl::string_view key);
};

// All combinations, each as a line without lists and ranges.
absl::StatusOr<std::vector<std::string>> ExpandLine(absl::string_view line, const Rules& rules) {
  struct Item {
    std::string key;  // with its "="; the whole item if it has none
    std::vector<std::string> values;
  };
  std::vector<Item> items;
  int64_t combinations = 1;
  for (absl::string_view text : absl::StrSplit(line, ',')) {
    const size_t equals = text.find('=');
    // The parser of the line rejects an item that is not key=value.
    if (equals == absl::string_view::npos || equals + 1 == text.size()) {
      items.push_back({std::string(text), {""}});
      continue;
    }
    const absl::string_view key = text.substr(0, equals);
    Item item{absl::StrCat(key, "="), {}};
    for (absl::string_view part : absl::StrSplit(text.substr(equals + 1), '/')) {
      absl::Status s = ExpandValue(key, part, rules.is_count(key), &item.values);
      if (!s.ok()) return s;
    }
    combinations *= static_cast<int64_t>(item.values.size());
    if (combinations > rules.most) {
      return absl::InvalidArgumentError(absl::StrCat(
          rules.one, ": \"", line, "\" stands for more than ", rules.most, " ", rules.many));
    }
    items.push_back(std::move(item));
  }
  std::vector<std::string> lines;
  std::vector<size_t> chosen(items.size(), 0);
  for (int64_t n = 0; n < combinations; ++n) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < items.size(); ++i) {
      parts.push_back(absl::StrCat(items[i].key, items[i].values[chosen[i]]));
    }
    lines.push_back(absl::StrJoin(parts, ","));
    for (size_t i = items.size(); i-- > 0;) {
      if (++chosen[i] < items[i].values.size()) break;
      chosen[i] = 0;
    }
  }
  return lines;
}

// The error, with the line if there are several.
absl::Status InLine(const absl::Status& status, const std::string& line, size_t lines) {
  if (lines == 1) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), " (in ", line, ")"));
}

}  // namespace

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  absl::string_view digits = text;
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&digits, "k")) unit = 1024;
  if (unit == 1 && absl::ConsumeSuffix(&digits, "m")) unit = 1024 * 1024;
  int64_t count = 0;
  const bool clean = !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!clean || !absl::SimpleAtoi(digits, &count) || count > (int64_t{1} << 62) / unit) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a count such as 512, 4k, 1m"));
  }
  return count * unit;
}

absl::StatusOr<std::vector<AttentionProblem>> ExpandSweep(absl::string_view line) {
  const absl::StatusOr<std::vector<std::string>> lines =
      ExpandLine(line, {"problem", "problems", kMostProblems, IsCount});
  if (!lines.ok()) return lines.status();
  std::vector<AttentionProblem> problems;
  for (const std::string& one : *lines) {
    absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(one);
    if (!problem.ok()) return InLine(problem.status(), one, lines->size());
    problems.push_back(*problem);
  }
  return problems;
}

absl::StatusOr<std::vector<LaunchConfig>> ExpandConfigs(absl::string_view line) {
  const absl::StatusOr<std::vector<std::string>> lines = ExpandLine(
      line, {"config", "configurations", kMostConfigs, [](absl::string_view) { return true; }});
  if (!lines.ok()) return lines.status();
  std::vector<LaunchConfig> configs;
  for (const std::string& one : *lines) {
    absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(one);
    if (!config.ok()) return InLine(config.status(), one, lines->size());
    configs.push_back(*std::move(config));
  }
  return configs;
}

CommonKeys SplitCommon(const std::vector<std::string>& lines) {
  CommonKeys result;
  std::vector<std::vector<std::string>> items;
  for (const std::string& line : lines) items.push_back(absl::StrSplit(line, ','));
  const auto in_all = [&items](const std::string& item) {
    return std::all_of(items.begin(), items.end(), [&item](const std::vector<std::string>& line) {
      return std::find(line.begin(), line.end(), item) != line.end();
    });
  };
  for (const std::vector<std::string>& line : items) {
    std::vector<std::string> common, rest;
    for (const std::string& item : line) (in_all(item) ? common : rest).push_back(item);
    result.common = absl::StrJoin(common, ",");
    result.rests.push_back(absl::StrJoin(rest, ","));
  }
  return result;
}

}  // namespace attnlab
