#include "attention/cuda/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attention/core/compute_capability.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/cpu_cache.h"

namespace attnlab {
namespace {

std::string CpuName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

int UsableThreads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// The physical GPUs. The runtime takes milliseconds to describe one, so a process keeps the GPUs
// that it has found. If it found none, it asks again.
absl::StatusOr<std::vector<DeviceInfo>> Gpus() {
  static std::mutex* const mutex = new std::mutex;
  static const std::vector<DeviceInfo>* known = nullptr;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (known == nullptr) {
    absl::StatusOr<std::vector<DeviceInfo>> gpus = cuda_backend::Devices();
    if (!gpus.ok()) return gpus;
    known = new std::vector<DeviceInfo>(*std::move(gpus));
  }
  return *known;
}

}  // namespace

DeviceInfo CpuInfo() {
  static const DeviceInfo* const kInfo = [] {
    auto* info = new DeviceInfo;
    info->device = Device::Cpu();
    info->name = CpuName();
    info->threads = UsableThreads();
    info->memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    // The C library's figure differs if there are several L3s, or in a virtual machine.
    info->last_level_cache_bytes = LastLevelCacheBytes(kCpuCacheDirectory);
    if (info->last_level_cache_bytes == 0) {
      // 0 if the C library does not know it either.
      info->last_level_cache_bytes =
          std::max({sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE), 0L});
    }
    return info;
  }();
  return *kInfo;
}

absl::StatusOr<std::vector<DeviceInfo>> CudaInfo() {
  absl::StatusOr<std::vector<DeviceInfo>> gpus = Gpus();
  if (!gpus.ok()) return gpus;
  const char* const limit = std::getenv("ATTNLAB_COMPUTE_CAPABILITY");
  if (absl::Status s = LimitCapability(limit == nullptr ? "" : limit, &*gpus); !s.ok()) return s;
  return gpus;
}

absl::StatusOr<DeviceInfo> InfoOf(const Device& device) {
  if (device.kind == DeviceKind::kCpu) return CpuInfo();
  absl::StatusOr<std::vector<DeviceInfo>> gpus = CudaInfo();
  if (!gpus.ok()) {
    return absl::Status(gpus.status().code(),
                        absl::StrCat("device: ", ToString(device), ": ", gpus.status().message()));
  }
  if (device.ordinal < 0 || device.ordinal >= static_cast<int64_t>(gpus->size())) {
    return absl::NotFoundError(absl::StrCat("device: there is no ", ToString(device),
                                            "; this machine has ", gpus->size(), " GPU(s)"));
  }
  return (*gpus)[device.ordinal];
}

}  // namespace attnlab
