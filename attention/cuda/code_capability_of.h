// Which code runs on a device, for the host code that chooses it.
#ifndef ATTENTION_CUDA_CODE_CAPABILITY_OF_H_
#define ATTENTION_CUDA_CODE_CAPABILITY_OF_H_

#include "attention/core/device.h"

namespace attnlab::cuda_backend {

// The compute capability of the code that runs on the device (code_capability.h), or the device's
// own if it cannot be asked.
int CodeCapabilityOf(const DeviceInfo& device);

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_CODE_CAPABILITY_OF_H_
