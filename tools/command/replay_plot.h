// The picture of `attnlab replay --plot`: pages and sequences over time.
#ifndef TOOLS_COMMAND_REPLAY_PLOT_H_
#define TOOLS_COMMAND_REPLAY_PLOT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "paged/replay/replay.h"

namespace attnlab::command {

// An SVG of 900 × 560 that needs no other file, in light or dark colours as the reader prefers.
// `title` may be any bytes.
std::string ReplaySvg(const paged::ReplayReport& report, absl::string_view title,
                      int64_t bytes_per_token);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_REPLAY_PLOT_H_
