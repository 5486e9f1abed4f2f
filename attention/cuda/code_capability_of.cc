#include "attention/cuda/code_capability_of.h"

#include "attention/cuda/call.h"
#include "attention/cuda/code_capability.h"

namespace attnlab::cuda_backend {

int CodeCapabilityOf(const DeviceInfo& device) {
  const ScopedDevice current(device.device.ordinal);
  int capability = 0;
  if (current.status().ok() && ToStatus(device::CodeCapability(&capability), "").ok()) {
    return capability;
  }
  return device.compute_capability;
}

}  // namespace attnlab::cuda_backend
