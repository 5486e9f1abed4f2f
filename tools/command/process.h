// Runs a subcommand as a process.
#ifndef TOOLS_COMMAND_PROCESS_H_
#define TOOLS_COMMAND_PROCESS_H_

#include "tools/command/command.h"

namespace attnlab::command {

// Main() on the process's streams: colours on a terminal, and an exit code that also covers lack of
// memory and failed writes to the standard output.
int RunProcess(const Arguments& arguments);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROCESS_H_
