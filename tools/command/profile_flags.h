// The flags of `attnlab profile`, and what it does without a GPU or a CUDA toolkit: say what flags
// there are, and make the page of a profile that was measured elsewhere.
#ifndef TOOLS_COMMAND_PROFILE_FLAGS_H_
#define TOOLS_COMMAND_PROFILE_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/command/command.h"
#include "tools/command/selection.h"
#include "tools/lib/arguments.h"

namespace attnlab::command {

struct ProfileFlags {
  ProblemFlags problem;
  std::string kernel = "all", device = "cuda:0";
  std::vector<std::string> configs;
  std::string set = "traffic";
  std::vector<std::string> metrics;
  bool list_metrics = false;
  std::string chip, match;
  int64_t repetitions = 3, seed = 0;
  std::string ceilings = "kept";
  bool lse = false, verify = true;
  std::string commit;
  Formats formats;
  std::string html, from;
};

// All but the section on exit codes, which are the command's.
ArgumentParser MakeProfileParser(ProfileFlags* flags);

// InvalidArgument, with the flag, where some that were given do not go together: with
// --list_metrics or --from those of a run, without the former those that go with it alone.
absl::Status CheckTogether(const ArgumentParser& parser, const ProfileFlags& flags);

// The page of --html from the profile of --from. Errors name the flag.
absl::Status WriteReportOfFile(const ProfileFlags& flags);

// The error with the flag before it, where it does not begin with that already.
absl::Status OfFlag(const absl::Status& status, absl::string_view flag);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROFILE_FLAGS_H_
