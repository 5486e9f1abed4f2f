// The parts that the JSON of several subcommands has in common.
#ifndef TOOLS_COMMAND_JSON_H_
#define TOOLS_COMMAND_JSON_H_

#include <string>

#include "attention/machine.h"
#include "nlohmann/json.hpp"

namespace attnlab::command {

using Json = nlohmann::ordered_json;

// {"device": "cpu", "name": …, "threads": …} or {"device": "cuda:0", …, "compute_capability": …,
// "multiprocessors": …, "driver": …, "cuda_driver": …, "cuda_runtime": …}; both with memory and
// last-level cache. A version that is not known is null.
Json MachineJson(const DeviceInfo& info);

// "2 threads" or "sm_90, 132 SMs".
std::string MachineSummary(const DeviceInfo& info);

// Indented, and safe for text that is not UTF-8, such as a file name.
std::string Dump(const Json& json);

// "2025-01-31T12:00:00Z", now.
std::string UtcNow();

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_JSON_H_
