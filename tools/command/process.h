// Runs a subcommand as a process.
#ifndef TOOLS_COMMAND_PROCESS_H_
#define TOOLS_COMMAND_PROCESS_H_

#include "tools/command/command.h"

namespace attnlab::command {

// Calls Main() on the process's streams, with colours on a terminal. The exit code also covers lack
// of memory and failed writes to the standard output.
int RunProcess(const Arguments& arguments);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROCESS_H_
