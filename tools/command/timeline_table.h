// What GPUs did when, as a table, and as a file for viewers of traces.
#ifndef TOOLS_COMMAND_TIMELINE_TABLE_H_
#define TOOLS_COMMAND_TIMELINE_TABLE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "profiling/timeline.h"
#include "tools/command/command.h"
#include "tools/lib/json.h"

namespace attnlab::command {

// Seconds of a GPU in the span of all.
struct GpuTime {
  double kernels = 0;  // at least one runs
  double copies = 0;   // at least one copy, or a memset
  double exposed = 0;  // of these, while no kernel runs
  double nothing = 0;  // from the first activity of any GPU to the last
};
std::map<uint32_t, GpuTime> GpuTimes(const std::vector<profiling::Activity>& timeline);

// In the order of time, and below that what each GPU did in sum.
void PrintTimeline(const std::vector<profiling::Activity>& timeline, const Streams& streams);

// Of Chrome's format, which Perfetto (ui.perfetto.dev) shows: a process per GPU, a thread per stream.
Json TraceOf(const std::vector<profiling::Activity>& timeline);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_TIMELINE_TABLE_H_
