// Runs a program as a process of its own, for tests of a command.
#ifndef TOOLS_LIB_PROCESS_H_
#define TOOLS_LIB_PROCESS_H_

#include <map>
#include <string>
#include <vector>

namespace attnlab {

struct ProcessOptions {
  // All there is, besides PATH, and the GPUs that a test was given (ci/gpu_slot.py).
  std::map<std::string, std::string> environment;
  std::string stdout_path;  // where its standard output goes; empty: into ProcessResult::out
  bool terminal = false;    // its standard output and error are one pseudo terminal: out has both
};

struct ProcessResult {
  int exit_code = -1;  // 128 + the signal's number for one that was killed
  std::string out, err;
};

// Waits for its end. exit_code is -1, with a message in `err`, when it could not be started.
ProcessResult RunProcess(const std::string& program, const std::vector<std::string>& arguments,
                         const ProcessOptions& options = {});

// A file of this build by its path in the workspace, as a test sees it.
std::string Runfile(const std::string& path);

}  // namespace attnlab

#endif  // TOOLS_LIB_PROCESS_H_
