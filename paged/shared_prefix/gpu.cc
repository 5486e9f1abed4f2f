#include "paged/shared_prefix/gpu.h"

#include "attention/cuda/call.h"
#include "attention/device/element_of.h"
#include "paged/shared_prefix/launch.h"

namespace attnlab::paged {

absl::Status PrefixInputsOnGpu(int ordinal, const PrefixInputs& inputs, DType dtype, void* stream) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  return cuda_backend::ToStatus(
      LaunchPrefixInputs(inputs, device::ElementOf(dtype), static_cast<cudaStream_t>(stream)),
      "shared prefix: inputs");
}

absl::Status PrefixMergeOnGpu(int ordinal, const PrefixMerge& merge, DType dtype, void* stream) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  return cuda_backend::ToStatus(
      LaunchPrefixMerge(merge, device::ElementOf(dtype), static_cast<cudaStream_t>(stream)),
      "shared prefix: merge");
}

}  // namespace attnlab::paged
