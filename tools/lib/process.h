// Runs a program as a child process.
#ifndef TOOLS_LIB_PROCESS_H_
#define TOOLS_LIB_PROCESS_H_

#include <map>
#include <string>
#include <vector>

namespace attnlab {

struct ProcessOptions {
  // The whole environment, except PATH and the GPUs of the test (ci/gpu_slot.py).
  std::map<std::string, std::string> environment;
  bool inherit_environment = false;  // besides, all that this process has
  double timeout_seconds = 0;        // then it is killed, with its exit code; 0: it takes its time
  std::string stdout_path;  // where its standard output goes; empty: into ProcessResult::out
  bool terminal = false;    // its standard output and error are one pseudo terminal: out has both
};

struct ProcessResult {
  int exit_code = -1;  // 128 + the signal's number for one that was killed
  std::string out, err;
};

// Waits for its end. If it could not be started, exit_code is -1 and `err` has a message.
ProcessResult RunProcess(const std::string& program, const std::vector<std::string>& arguments,
                         const ProcessOptions& options = {});

// The path at which a test finds a file of the workspace.
std::string Runfile(const std::string& path);

}  // namespace attnlab

#endif  // TOOLS_LIB_PROCESS_H_
