#include "tools/command/profile_without.h"

#include "absl/status/status.h"
#include "tools/arguments.h"
#include "tools/command/profile_flags.h"

namespace attnlab::command {

int ProfileWithout(const Arguments& arguments, const Streams& streams, absl::string_view why) {
  ProfileFlags flags;
  ArgumentParser parser = MakeProfileParser(&flags);
  parser.AddSection("Exit codes", kExitCodesHelp);
  int code = kOk;
  if (ParsedToEnd(&parser, "profile", arguments, streams, &code)) return code;
  absl::Status s = CheckTogether(parser, flags);
  if (s.ok()) s = flags.from.empty() ? absl::UnimplementedError(why) : WriteReportOfFile(flags);
  return s.ok() ? kOk : Fail(streams, "profile", s);
}

}  // namespace attnlab::command
