#include "tools/command/machine.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/cuda/backend.h"
#include "tools/lib/table.h"

namespace attnlab::command {

Json MachineJson(const DeviceInfo& info) {
  Json json = {{"device", ToString(info.device)}, {"name", info.name}};
  if (info.device.kind == DeviceKind::kCpu) {
    json["threads"] = info.threads;
  } else {
    json["compute_capability"] = info.compute_capability;
    json["multiprocessors"] = info.multiprocessors;
    const absl::StatusOr<cuda_backend::Versions> versions = cuda_backend::GetVersions();
    for (const char* key : {"driver", "cuda_driver", "cuda_runtime"}) json[key] = nullptr;
    if (versions.ok()) {
      if (!versions->driver.empty()) json["driver"] = versions->driver;
      json["cuda_driver"] = versions->cuda_driver;
      json["cuda_runtime"] = versions->cuda_runtime;
    }
  }
  json["memory_bytes"] = info.memory_bytes;
  json["last_level_cache_bytes"] = info.last_level_cache_bytes;
  return json;
}

std::string MachineSummary(const DeviceInfo& info) {
  if (info.device.kind == DeviceKind::kCpu) {
    return Counted(info.threads, "thread");
  }
  return absl::StrCat("sm_", info.compute_capability, ", ", info.multiprocessors, " SMs");
}

}  // namespace attnlab::command
