#include "profiling/report/report_file.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "profiling/report/report.h"
#include "tools/lib/files.h"

namespace attnlab::profiling {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{1} << 30;

// Stores no values, only the position of the error, which Json::parse() reports only by throwing.
struct ErrorFinder : nlohmann::json_sax<Json> {
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    read = position;
    return false;
  }

  size_t read = 0;  // bytes read when the error was found; the end of the text counts as one
};

// Why a text is not JSON.
std::string NotJson(const std::string& text) {
  if (absl::StripAsciiWhitespace(text).empty()) return "is empty";
  ErrorFinder finder;
  Json::sax_parse(text, &finder);
  if (finder.read > text.size()) {
    return absl::StrCat("ends early, after byte ", text.size());
  }
  const size_t at = finder.read > 0 ? finder.read - 1 : 0;
  const size_t line = 1 + std::count(text.begin(), text.begin() + at, '\n');
  const size_t begin = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const size_t column = begin == std::string::npos ? at + 1 : at - begin;
  constexpr size_t kBefore = 16, kShown = 32;
  const size_t from = at > kBefore ? at - kBefore : 0;
  std::string shown;
  for (const char c : absl::string_view(text).substr(from, kShown)) {
    if (absl::ascii_isspace(c)) {
      shown += ' ';  // keep it on one line
    } else {
      shown += absl::ascii_isprint(c) ? std::string(1, c) : absl::CHexEscape(std::string(1, c));
    }
  }
  return absl::StrCat("is not JSON: line ", line, ", column ", column, ", in `", shown, "`");
}

// The first wrong field of a row among those that the page shows, or "". Any field but text may be
// null or absent.
std::string WrongField(const Json& row) {
  if (!row.is_object()) return absl::StrCat("is ", row.type_name(), ", not an object");
  const auto is = [&](const char* field, const char* wanted) {
    const auto found = row.find(field);
    return absl::StrCat("\"", field, "\" is ",
                        found == row.end() ? "missing" : std::string(found->type_name()), ", not ",
                        wanted);
  };
  for (const char* field : {"problem", "kernel"}) {
    const auto found = row.find(field);
    if (found == row.end() || !found->is_string()) return is(field, "a string");
    if (found->get_ref<const std::string&>().empty()) {
      return absl::StrCat("\"", field, "\" is an empty string");
    }
  }
  const auto given = [&](const char* field) {
    const auto found = row.find(field);
    return found != row.end() && !found->is_null() ? &*found : nullptr;
  };
  for (const char* field :
       {"seconds", "tflop_per_second", "flops", "compulsory_bytes_read", "compulsory_bytes_written",
        "expected_bytes_read", "expected_bytes_written", "ceiling_flops_per_second",
        "fraction_of_roofline", "fraction_of_compulsory_roofline"}) {
    const Json* value = given(field);
    if (value != nullptr && !value->is_number()) return is(field, "a number or null");
  }
  if (const Json* value = given("l2_decides"); value != nullptr && !value->is_boolean()) {
    return is("l2_decides", "true, false or null");
  }
  for (const char* field : {"config", "verdict"}) {
    const Json* value = given(field);
    if (value != nullptr && !value->is_string()) return is(field, "a string");
  }
  for (const char* field : {"launches", "timeline"}) {
    const Json* value = given(field);
    if (value != nullptr && !value->is_array()) return is(field, "an array");
  }
  const Json* counted = given("counted");
  if (counted == nullptr) return "";
  if (!counted->is_object()) return is("counted", "an object");
  for (const auto& [name, value] : counted->items()) {
    if (!value.is_null() && !value.is_number()) {
      return absl::StrCat("\"counted\": \"", name, "\" is ", value.type_name(),
                          ", not a number or null");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<Json> ReadProfile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (!text.ok()) return text.status();
  const auto not_one = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", why, "; `attnlab profile --json` makes one"));
  };
  Json profile = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (profile.is_discarded()) return not_one(NotJson(*text));
  const Json command = profile.is_object() ? profile.value("command", Json()) : Json();
  if (command != "profile") {
    return not_one(
        command.is_string()
            ? absl::StrCat("is from `attnlab ", command.get<std::string>(), "`, not a profile")
            : "is not a profile: it has no \"command\": \"profile\"");
  }
  const Json rows = profile.value("rows", Json());
  if (!rows.is_array() || rows.empty()) return not_one("has no rows");
  // The page would show hyphens for all malformed fields.
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string wrong = WrongField(rows[i]);
    if (!wrong.empty()) {
      return not_one(absl::StrCat("row ", i + 1, " of ", rows.size(), ": ", wrong));
    }
  }
  return profile;
}

absl::Status WriteHtmlReport(const Json& profile, const std::string& path) {
  return WriteFile(path, HtmlReport(profile));
}

}  // namespace attnlab::profiling
