// Several problems, or several launch configurations, in one line of key=value items. A value can
// be a list. An integer can be a range.
//
//   sq=512..16384     512, 1024, … 16384: doubles within the range
//   d=64/128          64, 128
//   sq=4k             4096; k is 1024, m is 1024 k
//   dtype=fp32/bf16   every key takes lists
//
// The line stands for all combinations; the last key varies fastest. In problems, skv defaults to
// sq, hkv to hq and dv to d.
//
//   ExpandSweep("hq=8,sq=512..2048,d=64/128")      // six problems
//   ExpandConfigs("block=32..512,permute=always")  // five configurations
#ifndef TOOLS_COMMAND_SWEEP_H_
#define TOOLS_COMMAND_SWEEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"

namespace attnlab {

// The maximum number of problems and of configurations, per line and per command.
constexpr int64_t kMostProblems = 1000;
constexpr int64_t kMostConfigs = 100;

// "512", "4k", "1m". InvalidArgument for anything else, and above 2^62.
absl::StatusOr<int64_t> ParseCount(absl::string_view text);

// The problems of the line, in order, each valid. InvalidArgument for a malformed range or
// list, for what AttentionProblem::Parse() rejects, and for more than kMostProblems.
absl::StatusOr<std::vector<AttentionProblem>> ExpandSweep(absl::string_view line);

// The configurations of the line, in order. Kernels check keys and values. InvalidArgument for a
// malformed range or list, for what LaunchConfig::Parse() rejects, and for more than kMostConfigs.
absl::StatusOr<std::vector<LaunchConfig>> ExpandConfigs(absl::string_view line);

// Splits problems for a table: the keys that all share, and the rest of each problem.
//
//   {"hq=8,sq=1,d=64", "hq=8,sq=2,d=64"}  ->  common "hq=8,d=64", rests {"sq=1", "sq=2"}
//
// For one problem, or several equal ones, all keys are common.
struct CommonKeys {
  std::string common;
  std::vector<std::string> rests;
};
CommonKeys SplitCommon(const std::vector<std::string>& lines);

}  // namespace attnlab

#endif  // TOOLS_COMMAND_SWEEP_H_
