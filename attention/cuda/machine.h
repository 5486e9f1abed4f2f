// What this machine can compute on: its processor and its GPUs.
#ifndef ATTENTION_CUDA_MACHINE_H_
#define ATTENTION_CUDA_MACHINE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "attention/core/device.h"

namespace attnlab {

// The processor, with only the threads that this process may run on.
DeviceInfo CpuInfo();

// The GPUs, in CUDA's order. Unavailable if there is no driver or no GPU, Unimplemented if the
// program was built without a CUDA toolkit; the message says which. Once found, they are kept for
// the life of the process.
//
// $ATTNLAB_COMPUTE_CAPABILITY, such as 75, makes them look as if they had that compute capability
// and its limits (compute_capability.h). InvalidArgument if that is not possible.
absl::StatusOr<std::vector<DeviceInfo>> CudaInfo();

// The given device. NotFound if this machine does not have it; the message says what it has.
// Other errors are those of CudaInfo().
absl::StatusOr<DeviceInfo> InfoOf(const Device& device);

}  // namespace attnlab

#endif  // ATTENTION_CUDA_MACHINE_H_
