// What this machine has to compute on: its processor and its GPUs.
#ifndef ATTENTION_CUDA_MACHINE_H_
#define ATTENTION_CUDA_MACHINE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "attention/core/device.h"

namespace attnlab {

// The processor, restricted to the threads that this process may run on.
DeviceInfo CpuInfo();

// The GPUs, in CUDA's order. Unavailable when there is no driver or no GPU, Unimplemented when
// the program was built without a CUDA toolkit; the message says which. Found once a process.
//
// $ATTNLAB_COMPUTE_CAPABILITY, 75 say, makes them look as if they had that compute capability and
// the limits that come with it (compute_capability.h); InvalidArgument where they cannot.
absl::StatusOr<std::vector<DeviceInfo>> CudaInfo();

// The one device. NotFound when this machine does not have it; the message says what it has.
// Other errors are those of CudaInfo().
absl::StatusOr<DeviceInfo> InfoOf(const Device& device);

}  // namespace attnlab

#endif  // ATTENTION_CUDA_MACHINE_H_
