// The subcommands of attnlab, each a function of its arguments: main() and tests call the same.
//
//   attnlab list        kernels, what each supports, what this machine has
//   attnlab run         attention on .npy files or on generated inputs
//   attnlab verify      kernels against the oracle
//   attnlab bench       verifies, then times
//   attnlab profile     what kernels move, by the counters of a GPU
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

// What the process ends with; kExitCodesHelp says it to people.
enum ExitCode {
  kOk = 0,
  kFailed = 1,         // a kernel gave a wrong result, or failed while it ran
  kUsage = 2,          // bad flags, bad input, a file that cannot be read or written
  kImpossible = 3,     // not on this machine: no such device, no kernel for the problem, no memory
  kInterrupted = 130,  // by Ctrl-C, as shells say it
};

extern const char kExitCodesHelp[];

// Where a subcommand prints: results to `out`, everything else to `err`.
struct Streams {
  std::ostream& out;
  std::ostream& err;
  bool colours = false;  // of what goes to `out`
  int64_t columns = 0;   // of the terminal that `out` is; 0: none, or not known
};

using Arguments = std::vector<std::string>;

int List(const Arguments& arguments, const Streams& streams);
int Run(const Arguments& arguments, const Streams& streams);
int Verify(const Arguments& arguments, const Streams& streams);
int Bench(const Arguments& arguments, const Streams& streams);
int Profile(const Arguments& arguments, const Streams& streams);
int Version(const Arguments& arguments, const Streams& streams);
int Completion(const Arguments& arguments, const Streams& streams);

// The command: `arguments` without the program's name; the first names the subcommand.
int Main(const Arguments& arguments, const Streams& streams);

// The exit code for an error: kUsage for what the caller can put right, kImpossible for what
// this machine or this build lacks, kFailed for the rest.
ExitCode ExitCodeOf(const absl::Status& status);

// Prints "attnlab run: message" and returns the exit code; `hint`, if any, goes below.
int Fail(const Streams& streams, absl::string_view subcommand, const absl::Status& status,
         absl::string_view hint = "");

// While it lives, the first Ctrl-C is acknowledged at once, ends a kernel that runs on the CPU, and is
// what Interrupt::Pressed() tells; the second ends the process.
class StopOnCtrlC {
 public:
  explicit StopOnCtrlC(absl::string_view subcommand);
  ~StopOnCtrlC();
  StopOnCtrlC(const StopOnCtrlC&) = delete;
  StopOnCtrlC& operator=(const StopOnCtrlC&) = delete;

 private:
  Interrupt interrupt_;
};

// Says so, and returns kInterrupted. `nothing`: no row was done, or else the rows were `done`.
int Interrupted(const Streams& streams, absl::string_view subcommand, bool nothing,
                absl::string_view done = "done");

// --json[=FILE] and --csv[=FILE]: "" is not wanted, "-" is the standard output.
struct Formats {
  std::string json, csv;

  // Whether the standard output is left for tables.
  bool Tables() const { return json != "-" && csv != "-"; }
};
void AddJsonFlag(ArgumentParser* parser, Formats* formats);
void AddCsvFlag(ArgumentParser* parser, Formats* formats);

// Where results go in these formats. Files are created first, so that what cannot be written is
// said before minutes of work; what was there stays until Write().
class ResultFiles {
 public:
  // InvalidArgument where both formats go to one place.
  static absl::StatusOr<ResultFiles> Create(const Formats& formats);

  // `rows` as CSV.
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

// Parses, with the exit codes at the end of the help; true when the subcommand ends here, with
// *code: help was asked for, or a flag is wrong.
bool ParsedToEnd(ArgumentParser* parser, absl::string_view subcommand, const Arguments& arguments,
                 const Streams& streams, int* code);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_COMMAND_H_
