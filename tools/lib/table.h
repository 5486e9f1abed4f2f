// Results as text: a markdown table for people, CSV for spreadsheets.
//
//   Table table({{"kernel", Table::kLeft}, {"ms", Table::kRight}});
//   table.AddRow({{"cpu"}, {"1.25"}});
//   std::cout << table.Markdown();
//
//   | kernel |   ms |
//   |:-------|-----:|
//   | cpu    | 1.25 |
#ifndef TOOLS_LIB_TABLE_H_
#define TOOLS_LIB_TABLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tools/lib/terminal.h"

namespace attnlab {

class Table {
 public:
  enum Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = kLeft;
  };
  struct Cell {
    // Implicit, so that a row is a list of texts.
    Cell(std::string t, Colour c = Colour::kNone) : text(std::move(t)), colour(c) {}  // NOLINT
    Cell(const char* t, Colour c = Colour::kNone) : text(t), colour(c) {}             // NOLINT
    std::string text;
    Colour colour;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns; cells that are missing are empty, further ones are left out.
  void AddRow(std::vector<Cell> cells);

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }

  // Aligned in a fixed-width font; a "|" inside a cell is escaped. With colours it is for a
  // terminal.
  std::string Markdown(bool colours = false) const;

  // The same; or where its lines would be longer than `columns`, a block of lines for each row,
  // none of them longer. Columns of 0: any length.
  //
  //   kernel  cpu
  //   ms      1.25
  std::string Text(bool colours, int64_t columns) const;

 private:
  std::string Records(bool colours, int64_t columns) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Columns of the terminal that `fd` is: $COLUMNS, or what the terminal says. 0 where there is none,
// or it does not say.
int64_t TerminalColumns(int fd);

// CSV (RFC 4180, lines end in "\n") of objects: one column a key, in the order of their first
// appearance; a nested object's keys are joined with "."; null and missing values are empty.
std::string Csv(const std::vector<nlohmann::ordered_json>& rows);

// Short forms for tables. Three significant digits: "1.25", "31.4", "812", "0.00312".
std::string Digits(double value);
std::string Seconds(double seconds);                // "1.25 ms", "31.4 µs"
std::string SecondsRange(double low, double high);  // "1.2-1.4 ms", "0.9 ms - 1.1 s"
std::string ErrorNumber(double value);              // "0", "1.2e-07", "nan"

// The unit of a table's column of rates, by the largest of them: TFLOP/s, or GFLOP/s below 0.1
// TFLOP/s, or MFLOP/s. A rate in FLOP/s times the factor is in the unit.
struct RateUnit {
  const char* title;
  double factor;
};
RateUnit RateUnitFor(double largest_flops_per_second);

// "1 row", "2 rows", "1 entry", "0 entries".
std::string Counted(int64_t count, absl::string_view singular);
std::string Bytes(int64_t bytes);  // "32 MiB", "1.5 GiB"

}  // namespace attnlab

#endif  // TOOLS_LIB_TABLE_H_
