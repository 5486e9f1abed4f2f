// A place to compute on: the processor or a GPU, and what a kernel may ask about it.
#ifndef ATTENTION_CORE_DEVICE_H_
#define ATTENTION_CORE_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/cxx17.h"

namespace attnlab {

enum class DeviceKind { kCpu, kCuda };

// A place where tensors live and kernels run.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;  // of a GPU, as CUDA numbers it; 0 on the CPU

  static Device Cpu() { return {}; }
  static Device Cuda(int ordinal) { return {DeviceKind::kCuda, ordinal}; }

  friend bool operator==(const Device& a, const Device& b) {
    return a.kind == b.kind && a.ordinal == b.ordinal;
  }
  friend bool operator!=(const Device& a, const Device& b) { return !(a == b); }
};

// "cpu", "cuda:1".
std::string ToString(const Device& device);

// The inverse of ToString(); "cuda" means "cuda:0". Does not check that the device exists.
absl::StatusOr<Device> ParseDevice(absl::string_view text);

// What a kernel may ask about a device. Fields that do not apply are 0.
struct DeviceInfo {
  Device device;
  std::string name;                    // "NVIDIA H200", "Intel(R) Xeon(R) Processor"
  int64_t memory_bytes = 0;            // device memory, or the machine's RAM
  int64_t last_level_cache_bytes = 0;  // L2 of a GPU; the L3 that one core of a CPU uses

  // CPU
  int threads = 0;  // hardware threads that this process may use

  // GPU
  int compute_capability = 0;  // 75, 80, 86, 89, 90, …
  int multiprocessors = 0;
  // By its memory's clock and bus: more than any program reaches.
  double memory_bytes_per_second = 0;
  int64_t shared_memory_per_block = 0;  // the opt-in maximum, bytes
  int64_t registers_per_multiprocessor = 0;
};

}  // namespace attnlab

#endif  // ATTENTION_CORE_DEVICE_H_
