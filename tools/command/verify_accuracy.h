// attnlab verify --accuracy: the error that each dtype makes.
#ifndef TOOLS_COMMAND_VERIFY_ACCURACY_H_
#define TOOLS_COMMAND_VERIFY_ACCURACY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "attention/core/problem.h"
#include "tools/command/command.h"

namespace attnlab::command {

// Prints a table for each problem (attention/fp8/accuracy.h), or writes their JSON. `device`: "auto" is
// the CPU. Returns the exit code.
int VerifyAccuracy(const std::vector<AttentionProblem>& problems, const std::string& device,
                   int64_t seed, const Formats& formats, ResultFiles& files,
                   const Streams& streams);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_VERIFY_ACCURACY_H_
