// `attnlab profile --list_metrics`: what can be counted on a chip. Needs CUPTI, but no GPU.
#ifndef TOOLS_COMMAND_LIST_METRICS_H_
#define TOOLS_COMMAND_LIST_METRICS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "profiling/chip.h"
#include "tools/command/command.h"

namespace attnlab::command {

// Whether the chip counts each of the metrics: NotFound for one that it does not have,
// Unimplemented for one that CUPTI lists but does not count. Errors name the metric.
absl::Status CheckCountable(const profiling::Chip& chip, const std::vector<std::string>& metrics);

// The sets, with their quantities, the chip's metrics for these, and the passes over a kernel that
// each takes.
absl::Status ListSets(const profiling::Chip& chip, bool json, const Streams& streams);

// The same for one set ("": none) and named metrics, as one run would count them. Errors are those
// of CheckCountable() and profiling::Resolve().
absl::Status ListSelected(const profiling::Chip& chip, absl::string_view set,
                          const std::vector<std::string>& metrics, bool json,
                          const Streams& streams);

// Every metric of the chip whose name has that text. Each is printed as soon as its passes are
// known, because all of them take a minute; JSON comes at the end. NotFound if there is none;
// Cancelled after Ctrl-C, with what was found so far.
absl::Status ListMatching(const profiling::Chip& chip, const std::string& match, bool json,
                          const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_LIST_METRICS_H_
