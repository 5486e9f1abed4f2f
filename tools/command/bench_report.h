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

// Settings of the benchmark that the rows do not contain.
struct BenchReport {
  std::string baseline;  // the kernel that speed-ups are against; empty: the first row's
  std::string commit;    // empty: unknown
  int64_t seed = 0;
  double max_noise = 0.02;  // a share of the median
  bool verify = true;
  bool lse = false;
};

// One object per row, each with its problem, machine and date. Speed-ups compare rows of the same
// problem.
std::vector<Json> BenchJson(const std::vector<bench::Row>& rows, const BenchReport& report);

// Prints what all rows share, the table, and the errors. `rows` is not empty.
void PrintBench(const std::vector<bench::Row>& rows, const BenchReport& report,
                const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_BENCH_REPORT_H_
