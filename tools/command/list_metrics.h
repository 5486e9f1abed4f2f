// `attnlab profile --list_metrics`: what a chip can count. Needs CUPTI, but no GPU.
#ifndef TOOLS_COMMAND_LIST_METRICS_H_
#define TOOLS_COMMAND_LIST_METRICS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "profiling/chip.h"
#include "tools/command/command.h"

namespace attnlab::command {

// OK if the chip can count each metric. NotFound for a metric that the chip lacks, Unimplemented
// for one that CUPTI lists but cannot count. Errors name the metric.
absl::Status CheckCountable(const profiling::Chip& chip, const std::vector<std::string>& metrics);

// Lists the sets: their quantities, the chip's metrics for them, and how many passes over a kernel
// each set takes.
absl::Status ListSets(const profiling::Chip& chip, bool json, const Streams& streams);

// The same for one set ("": none) and some metrics, counted together in one run. Returns the errors
// of CheckCountable() and profiling::Resolve().
absl::Status ListSelected(const profiling::Chip& chip, absl::string_view set,
                          const std::vector<std::string>& metrics, bool json,
                          const Streams& streams);

// Lists every metric of the chip whose name contains `match`. All of them take a minute, so each is
// printed as soon as its passes are known. JSON is printed at the end. NotFound if there is none;
// Cancelled after Ctrl-C, with the metrics found so far printed.
absl::Status ListMatching(const profiling::Chip& chip, const std::string& match, bool json,
                          const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_LIST_METRICS_H_
