// attnlab profile in a build without a CUDA toolkit.
#include "absl/status/status.h"
#include "tools/arguments.h"
#include "tools/command/command.h"
#include "tools/command/profile_flags.h"

namespace attnlab::command {

int Profile(const Arguments& arguments, const Streams& streams) {
  ProfileFlags flags;
  ArgumentParser parser = MakeProfileParser(&flags);
  parser.AddSection("Exit codes", kExitCodesHelp);
  int code = kOk;
  if (ParsedToEnd(&parser, "profile", arguments, streams, &code)) return code;
  absl::Status s = CheckTogether(parser, flags);
  if (s.ok()) {
    s = flags.from.empty()
            ? absl::UnimplementedError(
                  "this program was built without a CUDA toolkit, whose CUPTI reads the counters; "
                  "`./bazelw build //tools:attnlab` makes one that has it where nvcc is on PATH or "
                  "CUDA_HOME=DIR says where a toolkit is")
            : WriteReportOfFile(flags);
  }
  return s.ok() ? kOk : Fail(streams, "profile", s);
}

}  // namespace attnlab::command
