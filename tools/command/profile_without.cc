// attnlab profile in a build without CUPTI: only its help, and the report of a profile that was
// measured elsewhere.
#include "absl/status/status.h"
#include "tools/command/command.h"
#include "tools/command/profile_flags.h"
#include "tools/lib/arguments.h"

namespace attnlab::command {

int Profile(const Arguments& arguments, const Streams& streams) {
  ProfileFlags flags;
  ArgumentParser parser = MakeProfileParser(&flags);
  int code = kOk;
  if (ParsedToEnd(&parser, "profile", arguments, streams, &code)) return code;
  absl::Status s = CheckTogether(parser, flags);
  if (s.ok() && flags.from.empty()) {
    s = absl::UnimplementedError(
        "this program was built without CUPTI, which reads the counters: it comes with a CUDA "
        "toolkit, from 12.6 on. `./bazelw build //tools:attnlab` makes one that has it where nvcc "
        "is on PATH or CUDA_HOME=DIR says where a toolkit is");
  }
  if (s.ok()) s = WriteReportOfFile(flags);
  return s.ok() ? kOk : Fail(streams, "profile", s);
}

}  // namespace attnlab::command
