// `attnlab profile --list_metrics`: what can be counted on a chip. Needs CUPTI, but no GPU.
#ifndef TOOLS_COMMAND_LIST_METRICS_H_
#define TOOLS_COMMAND_LIST_METRICS_H_

#include <string>

#include "absl/status/status.h"
#include "tools/command/command.h"

namespace attnlab::command {

// The sets, with their quantities and the metrics that these are on the chip, and the passes over a
// kernel that each takes; with `match` instead every metric of the chip whose name has that text.
// Errors are those of profiling::Chip::Open(); NotFound where nothing matches.
absl::Status ListMetrics(const std::string& chip, const std::string& match, bool json,
                         const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_LIST_METRICS_H_
