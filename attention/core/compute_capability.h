// What a GPU of each compute capability can do, without asking one: for lists where there is none,
// and for tests that run the code of an older GPU on a newer one.
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

// Of the capabilities that attnlab supports, least first.
const std::vector<CapabilityLimits>& SupportedCapabilities();

// InvalidArgument, with those that there are, for another.
absl::StatusOr<CapabilityLimits> LimitsOf(int compute_capability);

// 90 -> "9.0".
std::string CapabilityName(int compute_capability);

// Makes GPUs look as if they had the compute capability that `value` names, "75" say, and no more
// shared memory than that has, so that kernels choose the code path and the tiles that they would
// choose there. Their memory, speed and number of multiprocessors stay. `value` is that of
// $ATTNLAB_COMPUTE_CAPABILITY, and machine.h's CudaInfo() does this; "" changes nothing.
// InvalidArgument for what is no supported capability, or one above a GPU's own.
absl::Status LimitCapability(absl::string_view value, std::vector<DeviceInfo>* gpus);

}  // namespace attnlab

#endif  // ATTENTION_CORE_COMPUTE_CAPABILITY_H_
