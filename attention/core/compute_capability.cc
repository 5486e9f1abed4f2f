#include "attention/core/compute_capability.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab {
namespace {

constexpr int64_t kKib = 1024;

std::string SupportedList() {
  return absl::StrJoin(SupportedCapabilities(), ", ",
                       [](std::string* out, const CapabilityLimits& limits) {
                         absl::StrAppend(out, limits.compute_capability);
                       });
}

}  // namespace

const std::vector<CapabilityLimits>& SupportedCapabilities() {
  // "Maximum amount of shared memory per thread block" in the CUDA programming guide's table of
  // technical specifications per compute capability. From 8.0 on it is the shared memory of a
  // multiprocessor (cuda_occupancy.h) less 1 KiB that the system reserves for each block.
  static const std::vector<CapabilityLimits>* const kLimits = new std::vector<CapabilityLimits>{
      {75, 64 * kKib, 1024},  {80, 163 * kKib, 1024}, {86, 99 * kKib, 1024},
      {89, 99 * kKib, 1024},  {90, 227 * kKib, 1024}, {100, 227 * kKib, 1024},
      {120, 99 * kKib, 1024},
  };
  return *kLimits;
}

absl::StatusOr<CapabilityLimits> LimitsOf(int compute_capability) {
  for (const CapabilityLimits& limits : SupportedCapabilities()) {
    if (limits.compute_capability == compute_capability) return limits;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("compute capability ", compute_capability, " is not one of ", SupportedList()));
}

std::string CapabilityName(int compute_capability) {
  return absl::StrCat(compute_capability / 10, ".", compute_capability % 10);
}

absl::Status LimitCapability(absl::string_view value, std::vector<DeviceInfo>* gpus) {
  if (value.empty()) return absl::OkStatus();
  constexpr char kVariable[] = "ATTNLAB_COMPUTE_CAPABILITY";
  int capability = 0;
  // The number must be in its printed form: no sign, space or leading zero.
  const bool is_number = absl::SimpleAtoi(value, &capability) && absl::StrCat(capability) == value;
  const absl::StatusOr<CapabilityLimits> limits = LimitsOf(capability);
  if (!is_number || !limits.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kVariable, ": \"", value, "\" is not one of ", SupportedList()));
  }
  for (const DeviceInfo& gpu : *gpus) {
    if (gpu.compute_capability < capability) {
      return absl::InvalidArgumentError(absl::StrCat(kVariable, ": ", capability, " is above the ",
                                                     gpu.compute_capability, " of ",
                                                     "cuda:", gpu.device.ordinal, ", ", gpu.name));
    }
  }
  for (DeviceInfo& gpu : *gpus) {
    gpu.compute_capability = capability;
    gpu.shared_memory_per_block =
        std::min(gpu.shared_memory_per_block, limits->shared_memory_per_block);
  }
  return absl::OkStatus();
}

}  // namespace attnlab
