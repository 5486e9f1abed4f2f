// Version and commit of this attnlab, for `attnlab version` and for results.
#ifndef TOOLS_COMMAND_VERSION_H_
#define TOOLS_COMMAND_VERSION_H_

#include <string>

#include "tools/lib/json.h"

namespace attnlab::command {

constexpr char kVersion[] = "0.1.0";

// $ATTNLAB_COMMIT, or the commit of a build with --config=stamp, or "".
std::string Commit();

// {"version": "0.1.0", "commit": …, "cuda": "12.9", "capabilities": [75, 90]}. `cuda` is the CUDA
// runtime that the program was built with, null without CUDA. `capabilities` are those that its
// kernels were built for. An empty commit becomes null.
Json AttnlabJson(const std::string& commit = Commit());

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_VERSION_H_
