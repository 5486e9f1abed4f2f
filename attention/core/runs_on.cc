#include "attention/core/runs_on.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/compute_capability.h"

namespace attnlab {

absl::Status RunsOn(const KernelTraits& traits, const DeviceInfo& device) {
  if (traits.device != device.device.kind) {
    return absl::UnimplementedError(
        absl::StrCat("runs on ", traits.device == DeviceKind::kCpu ? "the CPU" : "CUDA devices",
                     ", not on ", ToString(device.device)));
  }
  const std::vector<int>& built = traits.compute_capabilities;
  if (traits.device == DeviceKind::kCpu || built.empty()) return absl::OkStatus();
  const int least = *std::min_element(built.begin(), built.end());
  if (device.compute_capability >= least) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "runs on GPUs of compute capability ", CapabilityName(least), " or later, not on ",
      ToString(device.device), " of ", CapabilityName(device.compute_capability)));
}

}  // namespace attnlab
