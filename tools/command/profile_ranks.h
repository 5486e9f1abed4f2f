// attnlab profile --gpus: when each GPU computes and copies, while several divide a problem.
#ifndef TOOLS_COMMAND_PROFILE_RANKS_H_
#define TOOLS_COMMAND_PROFILE_RANKS_H_

#include "absl/status/status.h"
#include "tools/command/command.h"
#include "tools/command/profile_flags.h"

namespace attnlab::command {

absl::Status ProfileRanks(const ProfileFlags& flags, const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROFILE_RANKS_H_
