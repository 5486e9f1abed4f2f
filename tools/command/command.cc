#include "tools/command/command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attention/core/stop.h"

namespace attnlab::command {

const char kExitCodesHelp[] =
    "0    done, and everything that was checked is right\n"
    "1    a kernel gave a wrong result, or failed while it ran\n"
    "2    bad flags, bad input, or a file that cannot be read or written\n"
    "3    not possible on this machine: no such device, no kernel for the problem, no memory\n"
    "130  interrupted (Ctrl-C); bench, profile and verify print what they have by then";

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
      return kUsage;
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return kImpossible;
    default:
      return kFailed;
  }
}

int Fail(const Streams& streams, absl::string_view subcommand, const absl::Status& status,
         absl::string_view hint) {
  streams.err << "attnlab " << subcommand << ": " << status.message() << "\n";
  if (!hint.empty()) streams.err << hint << "\n";
  return ExitCodeOf(status);
}

bool ParsedToEnd(ArgumentParser* parser, absl::string_view subcommand, const Arguments& arguments,
                 const Streams& streams, int* code) {
  parser->AddSection("Exit codes", kExitCodesHelp);
  const absl::Status s = parser->Parse(arguments);
  if (!s.ok()) {
    *code = Fail(streams, subcommand, s,
                 absl::StrCat("`attnlab ", subcommand, " --help` lists the flags"));
    return true;
  }
  if (!parser->help_wanted()) return false;
  streams.out << parser->Help();
  *code = kOk;
  return true;
}

StopOnCtrlC::StopOnCtrlC(absl::string_view subcommand)
    : interrupt_(absl::StrCat("attnlab ", subcommand,
                              ": interrupted, ending; Ctrl-C again ends it at once")) {
  StopWhen(&Interrupt::Flag());
}

StopOnCtrlC::~StopOnCtrlC() { StopWhen(nullptr); }

int Interrupted(const Streams& streams, absl::string_view subcommand, bool nothing,
                absl::string_view done) {
  streams.err << "attnlab " << subcommand << ": interrupted; "
              << (nothing ? "nothing was done by then"
                          : absl::StrCat("what was ", done, " by then is printed"))
              << "\n";
  return kInterrupted;
}

absl::Status OneFormat(bool json, bool csv) {
  return json && csv ? absl::InvalidArgumentError("--json and --csv exclude each other")
                     : absl::OkStatus();
}

}  // namespace attnlab::command
