// attnlab bench --gpus: one problem on several GPUs, by each way to divide it.
#ifndef TOOLS_COMMAND_BENCH_RANKS_H_
#define TOOLS_COMMAND_BENCH_RANKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/core/problem.h"
#include "tools/command/command.h"
#include "tools/lib/json.h"

namespace attnlab::command {

struct RanksFlags {
  int64_t gpus = 0;               // 0: not wanted
  std::vector<std::string> ways;  // "zigzag", "ring", "alltoall", "splitkv", "heads"; empty: all
  bool on_cpu = false;            // ranks are threads
  std::string kernel;             // "": the default one
  double seconds = 0.5;           // per row
  uint64_t seed = 0;
  bool verify = true;
};

// A row per problem and way. Ways that do not take a problem are left out, with the reason in `left_out`.
absl::Status BenchRanks(absl::Span<const AttentionProblem> problems, const RanksFlags& flags,
                        std::vector<Json>* rows, std::vector<std::string>* left_out);

void PrintRanks(const std::vector<Json>& rows, const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_BENCH_RANKS_H_
