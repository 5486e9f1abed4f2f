#include "tools/lib/table.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(TableTest, MarkdownIsAligned) {
  Table table({{"kernel", Table::kLeft}, {"time", Table::kRight}});
  table.AddRow({{"cpu"}, {"31.4 µs"}});
  table.AddRow({{"a|b"}, {"1 s", Colour::kRed}});
  table.AddRow({{"short"}});
  EXPECT_EQ(table.Markdown(),
            "| kernel |    time |\n"
            "|:-------|--------:|\n"
            "| cpu    | 31.4 µs |\n"
            "| a\\|b   |     1 s |\n"
            "| short  |         |\n");
  EXPECT_EQ(table.rows(), 3);
}

TEST(TableTest, ColoursDoNotMoveColumns) {
  Table table({{"verdict", Table::kLeft}});
  table.AddRow({{"ok", Colour::kGreen}});
  EXPECT_EQ(table.Markdown(true),
            "| \033[1mverdict\033[0m |\n|:--------|\n| \033[32mok\033[0m      |\n");
}

TEST(TableTest, RowsAreRecordsWhereTheTableIsTooWide) {
  Table table({{"kernel", Table::kLeft}, {"time", Table::kRight}, {"problem", Table::kLeft}});
  table.AddRow({{"cpu"}, {"31.4 µs", Colour::kRed}, {"b=1,hq=2,skv=12345678901234567"}});
  table.AddRow({{"a|b"}, {""}, {"b=2"}});
  const std::string markdown = table.Markdown();
  EXPECT_EQ(table.Text(false, 0), markdown);
  EXPECT_EQ(table.Text(false, static_cast<int64_t>(markdown.find('\n')) + 1), markdown);
  EXPECT_EQ(table.Text(true, 200), table.Markdown(true));
  EXPECT_EQ(table.Text(true, 24),
            "kernel   cpu\n"
            "time     \033[31m31.4 µs\033[0m\n"
            "problem  b=1,hq=2,\n"
            "         skv=12345678901\n"
            "         234567\n"
            "\n"
            "kernel   a|b\n"
            "problem  b=2\n");
}

TEST(TableTest, RatesHaveOneUnit) {
  const auto title = [](double rate) { return std::string(RateUnitFor(rate).title); };
  EXPECT_EQ(title(0.1e12), "TFLOP/s");
  EXPECT_EQ(title(0.099e12), "GFLOP/s");
  EXPECT_EQ(title(0.099e9), "MFLOP/s");
  EXPECT_EQ(title(0), "MFLOP/s");
  EXPECT_EQ(Digits(5e10 * RateUnitFor(5e10).factor), "50.0");
}

TEST(TableTest, CsvQuotesFlattensAndAlignsKeys) {
  const std::vector<nlohmann::ordered_json> rows = {
      {{"problem", "b=1,hq=2"}, {"machine", {{"name", "a \"b\""}, {"threads", 2}}}},
      {{"problem", "x"}, {"error", 1.5}, {"machine", {{"name", nullptr}}}},
  };
  EXPECT_EQ(Csv(rows),
            "problem,machine.name,machine.threads,error\n"
            "\"b=1,hq=2\",\"a \"\"b\"\"\",2,\n"
            "x,,,1.5\n");
}

TEST(TableTest, ThreeDigits) {
  EXPECT_EQ(Digits(0), "0");
  EXPECT_EQ(Digits(1.2345), "1.23");
  EXPECT_EQ(Digits(9.996), "10.0");
  EXPECT_EQ(Digits(31.44), "31.4");
  EXPECT_EQ(Digits(812.3), "812");
  EXPECT_EQ(Digits(123456), "123000");
  EXPECT_EQ(Digits(0.00312), "0.00312");
  EXPECT_EQ(Digits(1e-7), "1.00e-07");
  EXPECT_EQ(Digits(-2.5), "-2.50");
  EXPECT_EQ(Digits(std::nan("")), "nan");
}

TEST(TableTest, Units) {
  EXPECT_EQ(Seconds(2.5), "2.50 s");
  EXPECT_EQ(Seconds(1.25e-3), "1.25 ms");
  EXPECT_EQ(Seconds(0.99999e-3), "1.00 ms");
  EXPECT_EQ(Seconds(31.4e-6), "31.4 µs");
  EXPECT_EQ(Seconds(812e-9), "812 ns");
  EXPECT_EQ(SecondsRange(1.2e-3, 1.4e-3), "1.20-1.40 ms");
  EXPECT_EQ(SecondsRange(0.9e-3, 1.1), "900 µs - 1.10 s");
  EXPECT_EQ(ErrorNumber(0), "0");
  EXPECT_EQ(ErrorNumber(1.23e-7), "1.2e-07");
  EXPECT_EQ(ErrorNumber(std::nan("")), "nan");
  EXPECT_EQ(Counted(1, "row"), "1 row");
  EXPECT_EQ(Counted(0, "row"), "0 rows");
  EXPECT_EQ(Counted(1, "entry"), "1 entry");
  EXPECT_EQ(Counted(2, "entry"), "2 entries");
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(33554432), "32 MiB");
  EXPECT_EQ(Bytes(1610612736), "1.5 GiB");
}

}  // namespace
}  // namespace attnlab
