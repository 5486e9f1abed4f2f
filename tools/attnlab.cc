// The attnlab command.
#include <unistd.h>

#include <iostream>
#include <new>

#include "tools/command/command.h"
#include "tools/terminal.h"

int main(int argc, char** argv) {
  const attnlab::command::Streams streams = {std::cout, std::cerr,
                                             attnlab::ColoursWanted(STDOUT_FILENO)};
  int code = attnlab::command::kFailed;
  try {
    code = attnlab::command::Main({argv + (argc > 0 ? 1 : 0), argv + argc}, streams);
  } catch (const std::bad_alloc&) {
    // Large buffers are asked for with a Status; this is the rest, where a limit on memory is low.
    std::cerr << "attnlab: out of memory\n";
    return attnlab::command::kImpossible;
  }
  // A full disk shows here at the latest; without this the loss would go unseen.
  std::cout.flush();
  if (!std::cout) {
    std::cerr << "attnlab: cannot write to the standard output\n";
    return attnlab::command::kUsage;
  }
  return code;
}
