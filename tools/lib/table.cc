#include "tools/lib/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace attnlab {
namespace {

std::string Padded(absl::string_view text, int64_t width, Table::Align align, Colour colour) {
  const std::string blanks(std::max<int64_t>(0, width - DisplayWidth(text)), ' ');
  const std::string shown = Coloured(text, colour);
  return align == Table::kLeft ? shown + blanks : blanks + shown;
}

std::string Escaped(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

// Takes the first `width` columns of the text, or fewer to end behind a blank or a comma.
std::string TakeLine(absl::string_view* text, int64_t width) {
  size_t end = 0, behind = 0;
  int64_t seen = 0;
  for (; end < text->size(); ++end) {
    if (((*text)[end] & 0xC0) != 0x80 && seen++ == width) break;
    if ((*text)[end] == ' ' || (*text)[end] == ',') behind = end + 1;
  }
  if (end < text->size() && behind > 0) end = behind;
  const std::string line(text->substr(0, end));
  text->remove_prefix(end);
  return line;
}

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields FieldsOf(const nlohmann::ordered_json& row) {
  Fields fields;
  const nlohmann::ordered_json flat = row.flatten();
  for (const auto& [path, value] : flat.items()) {  // "/machine/name"
    fields.emplace_back(absl::StrReplaceAll(path.substr(1), {{"/", "."}}),
                        value.is_null()     ? ""
                        : value.is_string() ? value.get<std::string>()
                                            : value.dump());
  }
  return fields;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

void Table::AddRow(std::vector<Cell> cells) {
  cells.resize(columns_.size(), Cell(""));
  for (Cell& cell : cells) absl::StrReplaceAll({{"\n", " "}}, &cell.text);
  rows_.push_back(std::move(cells));
}

std::string Table::Markdown(bool colours) const {
  std::string head = "|", rule = "|", body;
  std::vector<int64_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int64_t width = std::max<int64_t>(2, DisplayWidth(columns_[i].title));
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(Escaped(row[i].text)));
    widths.push_back(width);
    const Align align = columns_[i].align;
    absl::StrAppend(
        &head, " ",
        Padded(columns_[i].title, width, align, colours ? Colour::kBold : Colour::kNone), " |");
    absl::StrAppend(&rule, align == kLeft ? ":" : "-", std::string(width, '-'),
                    align == kLeft ? "-" : ":", "|");
  }
  for (const auto& row : rows_) {
    absl::StrAppend(&body, "|");
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&body, " ",
                      Padded(Escaped(row[i].text), widths[i], columns_[i].align,
                             colours ? row[i].colour : Colour::kNone),
                      " |");
    }
    absl::StrAppend(&body, "\n");
  }
  return absl::StrCat(head, "\n", rule, "\n", body);
}

std::string Table::Text(bool colours, int64_t columns) const {
  const std::string markdown = Markdown();
  const bool fits =
      columns == 0 || DisplayWidth(markdown.substr(0, markdown.find('\n'))) <= columns;
  return !fits ? Records(colours, columns) : colours ? Markdown(true) : markdown;
}

std::string Table::Records(bool colours, int64_t columns) const {
  int64_t titles = 0;
  for (const Column& column : columns_) titles = std::max(titles, DisplayWidth(column.title));
  const int64_t room = std::max<int64_t>(1, columns - titles - 2);
  std::string out;
  for (const auto& row : rows_) {
    if (&row != &rows_.front()) absl::StrAppend(&out, "\n");
    for (size_t i = 0; i < row.size(); ++i) {
      std::string title = columns_[i].title;
      for (absl::string_view rest = row[i].text; !rest.empty(); title.clear()) {
        absl::StrAppend(&out, Padded(title, titles, kLeft, Colour::kNone), "  ",
                        Coloured(TakeLine(&rest, room), colours ? row[i].colour : Colour::kNone),
                        "\n");
      }
    }
  }
  return out;
}

int64_t TerminalColumns(int fd) {
  if (isatty(fd) == 0) return 0;
  const char* const variable = std::getenv("COLUMNS");
  int64_t columns = 0;
  if (variable != nullptr && absl::SimpleAtoi(variable, &columns) && columns > 0) return columns;
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

RateUnit RateUnitFor(double largest) {
  if (largest >= 0.1e12) return {"TFLOP/s", 1e-12};
  if (largest >= 0.1e9) return {"GFLOP/s", 1e-9};
  return {"MFLOP/s", 1e-6};
}

std::string Csv(const std::vector<nlohmann::ordered_json>& rows) {
  std::vector<Fields> flat;
  std::vector<std::string> keys;
  for (const nlohmann::ordered_json& row : rows) {
    flat.push_back(FieldsOf(row));
    for (const auto& [key, value] : flat.back()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  const auto line = [](const std::vector<std::string>& fields) {
    return absl::StrJoin(fields, ",", [](std::string* out, const std::string& field) {
      absl::StrAppend(out, CsvField(field));
    });
  };
  std::string csv = absl::StrCat(line(keys), "\n");
  for (const auto& row : flat) {
    std::vector<std::string> fields;
    for (const std::string& key : keys) {
      const auto it = std::find_if(row.begin(), row.end(),
                                   [&key](const auto& pair) { return pair.first == key; });
      fields.push_back(it == row.end() ? "" : it->second);
    }
    absl::StrAppend(&csv, line(fields), "\n");
  }
  return csv;
}

std::string Digits(double value) {
  if (!std::isfinite(value)) return absl::StrFormat("%g", value);
  if (value == 0) return "0";
  // The magnitude after rounding to three digits: 9.996 is 10.0, not 10.00.
  const double rounded = std::strtod(absl::StrFormat("%.2e", value).c_str(), nullptr);
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(rounded)) + 1e-12));
  if (magnitude < -4) return absl::StrFormat("%.2e", value);
  return absl::StrFormat("%.*f", std::max(0, 2 - magnitude), rounded);
}

std::string Seconds(double seconds) {
  const double magnitude = std::abs(seconds);
  // Bounds a little below the unit, where three digits would round up to 1000.
  if (!(magnitude < 0.9995)) return absl::StrCat(Digits(seconds), " s");
  if (magnitude >= 0.9995e-3) return absl::StrCat(Digits(seconds * 1e3), " ms");
  if (magnitude >= 0.9995e-6) return absl::StrCat(Digits(seconds * 1e6), " µs");
  return absl::StrCat(Digits(seconds * 1e9), " ns");
}

std::string SecondsRange(double low, double high) {
  const std::string from = Seconds(low), to = Seconds(high);
  const size_t blank = from.find(' ');
  if (from.substr(blank) != to.substr(to.find(' '))) return absl::StrCat(from, " - ", to);
  return absl::StrCat(from.substr(0, blank), "-", to);
}

std::string ErrorNumber(double value) { return value == 0 ? "0" : absl::StrFormat("%.1e", value); }

std::string Counted(int64_t count, absl::string_view singular) {
  absl::string_view stem = singular;
  const absl::string_view end = count == 1 ? "" : absl::ConsumeSuffix(&stem, "y") ? "ies" : "s";
  return absl::StrCat(count, " ", stem, end);
}

std::string Bytes(int64_t bytes) {
  static constexpr absl::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value == std::floor(value) || value >= 100;
  return absl::StrFormat(whole ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

}  // namespace attnlab
