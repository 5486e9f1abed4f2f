// A device in results.
#ifndef TOOLS_COMMAND_MACHINE_H_
#define TOOLS_COMMAND_MACHINE_H_

#include <string>

#include "attention/core/device.h"
#include "tools/lib/json.h"

namespace attnlab::command {

// {"device": "cpu", "name": …, "threads": …} or {"device": "cuda:0", …, "compute_capability": …,
// "multiprocessors": …, "driver": …, "cuda_driver": …, "cuda_runtime": …}. Both also have
// "memory_bytes" and "last_level_cache_bytes". Unknown versions are null.
Json MachineJson(const DeviceInfo& info);

// "2 threads" or "sm_90, 132 SMs".
std::string MachineSummary(const DeviceInfo& info);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_MACHINE_H_
