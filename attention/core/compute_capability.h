// What a GPU of each compute capability can do, without querying one: for lists on machines without
// such a GPU, and for tests that run an older GPU's code on a newer one.
//
// A compute capability is ten times NVIDIA's number: 75, 80, 86, 89, 90, 100, 120.
#ifndef ATTENTION_CORE_COMPUTE_CAPABILITY_H_
#define ATTENTION_CORE_COMPUTE_CAPABILITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/device.h"

namespace attnlab {

// Limits of one block of threads.
struct CapabilityLimits {
  int compute_capability = 0;
  int64_t shared_memory_per_block = 0;  // static and dynamic, the opt-in maximum, bytes
  int threads_per_block = 0;
};

// The limits of each capability that attnlab supports, lowest first.
const std::vector<CapabilityLimits>& SupportedCapabilities();

// InvalidArgument, with the supported capabilities, for any other.
absl::StatusOr<CapabilityLimits> LimitsOf(int compute_capability);

// 90 -> "9.0".
std::string CapabilityName(int compute_capability);

// Makes GPUs look as if they had the compute capability `value`, such as "75", and at most its
// shared memory. Kernels then choose the code path and tiles that they would choose there. Memory,
// speed and number of multiprocessors stay the same. CudaInfo() in machine.h calls this with the
// value of $ATTNLAB_COMPUTE_CAPABILITY; "" changes nothing. InvalidArgument if the capability is
// not supported or is above a GPU's own.
absl::Status LimitCapability(absl::string_view value, std::vector<DeviceInfo>* gpus);

}  // namespace attnlab

#endif  // ATTENTION_CORE_COMPUTE_CAPABILITY_H_
