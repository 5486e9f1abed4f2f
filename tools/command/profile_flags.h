// The flags of `attnlab profile`, and the parts of it that need neither a GPU nor a CUDA toolkit:
// its help, and the report (--html) of a profile that was measured elsewhere.
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
  int64_t gpus = 0;  // 0: counters of one GPU; else a timeline of so many
  std::string parallel = "zigzag", trace;
};

// ParsedToEnd() adds the exit codes to the help.
ArgumentParser MakeProfileParser(ProfileFlags* flags);

// InvalidArgument for flags that do not go together. --list_metrics and --from exclude the flags of
// a measurement; --chip and --match need --list_metrics, --parallel and --trace --gpus.
absl::Status CheckTogether(const ArgumentParser& parser, const ProfileFlags& flags);

// Writes the report --html of the profile --from. Errors name the flag.
absl::Status WriteReportOfFile(const ProfileFlags& flags);

// The error with the flag before its message, unless it begins with that flag already.
absl::Status OfFlag(const absl::Status& status, absl::string_view flag);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROFILE_FLAGS_H_
