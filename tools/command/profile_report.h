// The results of `attnlab profile` as JSON and as tables.
#ifndef TOOLS_COMMAND_PROFILE_REPORT_H_
#define TOOLS_COMMAND_PROFILE_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "profiling/ceilings.h"
#include "profiling/kernel_profile.h"
#include "tools/command/command.h"
#include "tools/command/machine.h"
#include "tools/lib/json.h"

namespace attnlab::command {

// A profile, and whether the kernel's result was right.
struct ProfileRow {
  profiling::KernelProfile profile;
  std::string verdict;  // "ok", "WRONG", "not checked"
  std::string remark;   // what is wrong, or why the result was not checked
};

struct ProfileReport {
  std::vector<ProfileRow> rows;  // all on one GPU
  std::optional<profiling::Ceilings> ceilings;
  std::string chip;
  std::string commit;  // empty: unknown
  int64_t seed = 0;
  int64_t repetitions = 0;
  bool lse = false;
};

// {"command": "profile", "machine": …, "ceilings": …, "rows": [one object per row]}.
Json ProfileJson(const ProfileReport& report);

// Prints a table of the figures, the ceilings, the counters of other sets, each kernel's launches,
// and the errors. The report has at least one row.
void PrintProfile(const ProfileReport& report, const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROFILE_REPORT_H_
