// The rows of a benchmark as JSON and as a table.
#ifndef TOOLS_COMMAND_BENCH_REPORT_H_
#define TOOLS_COMMAND_BENCH_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "attention/bench/compare.h"
#include "tools/command/command.h"
#include "tools/command/machine.h"
#include "tools/lib/json.h"

namespace attnlab::command {

// What the rows do not say of how they came about.
struct BenchReport {
  std::string baseline;  // the kernel that speed-ups are against; empty: that of the first row
  std::string commit;    // empty: not known
  int64_t seed = 0;
  double max_noise = 0.02;  // a share of the median
  bool verify = true;
  bool lse = false;
};

// One object a row, with the problem, the machine and the date in each. Rows are of one or more
// problems; speed-ups are within a problem.
std::vector<Json> BenchJson(const std::vector<bench::Row>& rows, const BenchReport& report);

// What all rows share, the table, and what went wrong. There is at least one row.
void PrintBench(const std::vector<bench::Row>& rows, const BenchReport& report,
                const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_BENCH_REPORT_H_
