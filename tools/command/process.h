// A subcommand as a process.
#ifndef TOOLS_COMMAND_PROCESS_H_
#define TOOLS_COMMAND_PROCESS_H_

#include "tools/command/command.h"

namespace attnlab::command {

// Main() on the process's own streams: colours on a terminal, and an exit code that also says
// where memory ran out or the standard output could not be written.
int RunProcess(const Arguments& arguments);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROCESS_H_
