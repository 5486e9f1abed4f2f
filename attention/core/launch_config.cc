#include "attention/core/launch_config.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace attnlab {

absl::StatusOr<LaunchConfig> LaunchConfig::Parse(absl::string_view line) {
  LaunchConfig config;
  if (line.empty()) return config;
  for (absl::string_view item : absl::StrSplit(line, ',')) {
    const size_t equals = item.find('=');
    if (equals == 0 || equals == absl::string_view::npos || equals + 1 == item.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("config: \"", item, "\" is not of the form key=value"));
    }
    const std::string key(item.substr(0, equals));
    if (!config.values_.emplace(key, std::string(item.substr(equals + 1))).second) {
      return absl::InvalidArgumentError(absl::StrCat("config: ", key, " is given twice"));
    }
  }
  return config;
}

std::string LaunchConfig::ToString() const {
  return absl::StrJoin(values_, ",", absl::PairFormatter("="));
}

std::vector<std::string> LaunchConfig::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

void LaunchConfig::Set(absl::string_view key, absl::string_view value) {
  values_[std::string(key)] = std::string(value);
}

void LaunchConfig::Set(absl::string_view key, int64_t value) { Set(key, absl::StrCat(value)); }

std::string LaunchConfig::Get(absl::string_view key, absl::string_view otherwise) const {
  const auto it = values_.find(std::string(key));
  return it == values_.end() ? std::string(otherwise) : it->second;
}

absl::StatusOr<int64_t> LaunchConfig::GetInteger(absl::string_view key, int64_t otherwise,
                                                 int64_t low, int64_t high) const {
  const auto it = values_.find(std::string(key));
  if (it == values_.end()) return otherwise;
  int64_t value = 0;
  if (!absl::SimpleAtoi(it->second, &value) || value < low || value > high) {
    return absl::InvalidArgumentError(absl::StrCat("config: ", key, ": \"", it->second,
                                                   "\" is not an integer in ", low, "..", high));
  }
  return value;
}

absl::StatusOr<bool> LaunchConfig::GetBool(absl::string_view key, bool otherwise) const {
  const std::string value = Get(key, otherwise ? "true" : "false");
  if (value == "true" || value == "false") return value == "true";
  return absl::InvalidArgumentError(
      absl::StrCat("config: ", key, "=", value, " is neither true nor false"));
}

absl::Status LaunchConfig::CheckKeys(absl::Span<const absl::string_view> known) const {
  for (const auto& [key, value] : values_) {
    bool found = false;
    for (absl::string_view k : known) found = found || k == key;
    if (found) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "config: unknown key \"", key, "\"; ",
        known.empty() ? "this kernel has none" : "known are " + absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace attnlab
