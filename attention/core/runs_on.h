// Whether a kernel is built for a device, by the kernel's traits alone.
#ifndef ATTENTION_CORE_RUNS_ON_H_
#define ATTENTION_CORE_RUNS_ON_H_

#include "absl/status/status.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"

namespace attnlab {

// OK, or Unimplemented with what the kernel runs on and what the device is. A CUDA kernel runs on
// every GPU from its lowest compute capability on, because later GPUs run its PTX. A kernel whose
// code later GPUs cannot run (sm_90a) declines them in Prepare().
absl::Status RunsOn(const KernelTraits& traits, const DeviceInfo& device);

}  // namespace attnlab

#endif  // ATTENTION_CORE_RUNS_ON_H_
