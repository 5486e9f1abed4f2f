// attnlab profile in builds that cannot count: its help, and the report of a profile that was
// measured elsewhere.
#ifndef TOOLS_COMMAND_PROFILE_WITHOUT_H_
#define TOOLS_COMMAND_PROFILE_WITHOUT_H_

#include "absl/strings/string_view.h"
#include "tools/command/command.h"

namespace attnlab::command {

// The exit code; `why` is what the user is told of everything else.
int ProfileWithout(const Arguments& arguments, const Streams& streams, absl::string_view why);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROFILE_WITHOUT_H_
