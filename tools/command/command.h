// The subcommands of attnlab. Each is a function of its arguments, which main() and tests call.
//
//   attnlab list        kernels, what each supports, what this machine has
//   attnlab run         attention on .npy files or on generated inputs
//   attnlab verify      kernels against the oracle
//   attnlab bench       verifies, then times
//   attnlab tune        the fastest configuration of a kernel here
//   attnlab replay      memory of a paged cache for a trace of requests
//   attnlab simulate    what a problem would take on many GPUs
//   attnlab profile     bytes that kernels move, counted by the GPU
//   attnlab version     which attnlab this is
//   attnlab completion  a script for bash or zsh
#ifndef TOOLS_COMMAND_COMMAND_H_
#define TOOLS_COMMAND_COMMAND_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/lib/arguments.h"
#include "tools/lib/files.h"
#include "tools/lib/interrupt.h"
#include "tools/lib/json.h"

namespace attnlab::command {

// The exit code of the process. kExitCodesHelp explains the codes to users.
enum ExitCode {
  kOk = 0,
  kFailed = 1,         // a kernel gave a wrong result, or failed while it ran
  kUsage = 2,          // bad flags, bad input, a file that cannot be read or written
  kImpossible = 3,     // not on this machine: no such device, no kernel for the problem, no memory
  kInterrupted = 130,  // by Ctrl-C: 128 + SIGINT, as in shells
};

extern const char kExitCodesHelp[];

// Where a subcommand prints: results to `out`, everything else to `err`.
struct Streams {
  std::ostream& out;
  std::ostream& err;
  bool colours = false;  // whether `out` takes colours
  int64_t columns = 0;   // width of the terminal behind `out`; 0: no terminal, or unknown
};

using Arguments = std::vector<std::string>;

int List(const Arguments& arguments, const Streams& streams);
int Run(const Arguments& arguments, const Streams& streams);
int Verify(const Arguments& arguments, const Streams& streams);
int Bench(const Arguments& arguments, const Streams& streams);
int Tune(const Arguments& arguments, const Streams& streams);
int Replay(const Arguments& arguments, const Streams& streams);
int Simulate(const Arguments& arguments, const Streams& streams);
int Profile(const Arguments& arguments, const Streams& streams);
int Version(const Arguments& arguments, const Streams& streams);
int Completion(const Arguments& arguments, const Streams& streams);

// The whole command. `arguments` begin with the subcommand, not with the program's name.
int Main(const Arguments& arguments, const Streams& streams);

// The exit code for an error: kUsage if the user can fix it, kImpossible if this machine or this
// build lacks something, kFailed otherwise.
ExitCode ExitCodeOf(const absl::Status& status);

// Prints "attnlab run: message", then `hint` on a line of its own, and returns the exit code.
int Fail(const Streams& streams, absl::string_view subcommand, const absl::Status& status,
         absl::string_view hint = "");

// While this object lives, the first Ctrl-C prints a line, stops a kernel that runs on the CPU, and
// makes Interrupt::Pressed() true. The second Ctrl-C ends the process.
class StopOnCtrlC {
 public:
  explicit StopOnCtrlC(absl::string_view subcommand);
  ~StopOnCtrlC();
  StopOnCtrlC(const StopOnCtrlC&) = delete;
  StopOnCtrlC& operator=(const StopOnCtrlC&) = delete;

 private:
  Interrupt interrupt_;
};

// Prints that the command was interrupted and returns kInterrupted. `nothing`: there are no
// results; otherwise `done` says what happened to them, such as "listed".
int Interrupted(const Streams& streams, absl::string_view subcommand, bool nothing,
                absl::string_view done = "done");

// Values of --json[=FILE] and --csv[=FILE]. "": not given; "-": the standard output.
struct Formats {
  std::string json, csv;

  // Whether tables go to the standard output.
  bool Tables() const { return json != "-" && csv != "-"; }
};
void AddJsonFlag(ArgumentParser* parser, Formats* formats);
void AddCsvFlag(ArgumentParser* parser, Formats* formats);

// Writes results as JSON and CSV. Create() opens the files, so that a bad path is an error before
// minutes of work. Write() replaces older files; until then they stay as they are.
class ResultFiles {
 public:
  // InvalidArgument if both formats go to the same place.
  static absl::StatusOr<ResultFiles> Create(const Formats& formats);

  // `json` goes to --json, `rows` to --csv.
  absl::Status Write(const Json& json, const std::vector<Json>& rows, const Streams& streams);

 private:
  struct Target {
    bool to_output = false;
    std::optional<AtomicFile> file;
  };
  static absl::Status Open(absl::string_view flag, const std::string& path, Target* target);
  static absl::Status WriteTo(Target* target, const std::string& text, const Streams& streams);

  Target json_, csv_;
};

// Adds the exit codes to the help and parses. Returns true if the subcommand ends here with *code:
// the user asked for help, or a flag is wrong.
bool ParsedToEnd(ArgumentParser* parser, absl::string_view subcommand, const Arguments& arguments,
                 const Streams& streams, int* code);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_COMMAND_H_
