#include "tools/command/process.h"

#include <unistd.h>

#include <iostream>
#include <new>

#include "tools/lib/table.h"
#include "tools/lib/terminal.h"

namespace attnlab::command {

int RunProcess(const Arguments& arguments) {
  const Streams streams = {std::cout, std::cerr, ColoursWanted(STDOUT_FILENO),
                           TerminalColumns(STDOUT_FILENO)};
  int code = kFailed;
  try {
    code = Main(arguments, streams);
  } catch (const std::bad_alloc&) {
    // Large buffers return a Status. This is for small ones, under a low limit on memory.
    std::cerr << "attnlab: out of memory\n";
    return kImpossible;
  }
  // Without this, nobody would notice output lost to a full disk.
  std::cout.flush();
  if (!std::cout) {
    std::cerr << "attnlab: cannot write to the standard output\n";
    return kUsage;
  }
  return code;
}

}  // namespace attnlab::command
