#include "tools/command/command.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attention/core/stop.h"
#include "tools/lib/table.h"

namespace attnlab::command {

const char kExitCodesHelp[] =
    "0    done, and everything that was checked is right\n"
    "1    a kernel gave a wrong result, or failed while it ran\n"
    "2    bad flags, bad input, or a file that cannot be read or written\n"
    "3    not possible on this machine: no such device, no kernel for the problem, no memory\n"
    "130  interrupted (Ctrl-C); bench, profile, replay and verify print what they have by then";

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

void AddJsonFlag(ArgumentParser* parser, Formats* formats) {
  parser->AddOptional("json", "FILE", &formats->json, "-",
                      "print JSON in place of the table, or write FILE beside it");
}

void AddCsvFlag(ArgumentParser* parser, Formats* formats) {
  parser->AddOptional("csv", "FILE", &formats->csv, "-",
                      "print CSV in place of the table, or write FILE beside it");
}

absl::Status ResultFiles::Open(absl::string_view flag, const std::string& path, Target* target) {
  target->to_output = path == "-";
  if (path.empty() || target->to_output) return absl::OkStatus();
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(ResolvePath(path));
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat(flag, ": ", file.status().message()));
  }
  target->file.emplace(*std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<ResultFiles> ResultFiles::Create(const Formats& formats) {
  const std::string &json = formats.json, &csv = formats.csv;
  if (json == "-" && csv == "-") {
    return absl::InvalidArgumentError(
        "--json and --csv both go to the standard output; give one of them a file: --json=FILE");
  }
  if (!json.empty() && !csv.empty() && SameFile(ResolvePath(json), ResolvePath(csv))) {
    return absl::InvalidArgumentError(absl::StrCat("--json and --csv are both ", json));
  }
  ResultFiles files;
  absl::Status s = Open("--json", json, &files.json_);
  if (s.ok()) s = Open("--csv", csv, &files.csv_);
  if (!s.ok()) return s;
  return files;
}

absl::Status ResultFiles::WriteTo(Target* target, const std::string& text, const Streams& streams) {
  if (target->to_output) streams.out << text;
  if (!target->file) return absl::OkStatus();
  const absl::Status s = target->file->Append(text);
  return s.ok() ? target->file->Commit() : s;
}

absl::Status ResultFiles::Write(const Json& json, const std::vector<Json>& rows,
                                const Streams& streams) {
  absl::Status s = WriteTo(&json_, Dump(json), streams);
  if (s.ok()) s = WriteTo(&csv_, Csv(rows), streams);
  return s;
}

}  // namespace attnlab::command
