// Whether there is a GPU to run on, and if not, a reason to show to users.
#ifndef ATTENTION_CUDA_LOOK_FOR_GPUS_H_
#define ATTENTION_CUDA_LOOK_FOR_GPUS_H_

#include "cuda_runtime_api.h"

namespace attnlab::device {

// False if no driver is installed. CUDA's own error would then name a driver that is too old.
inline bool HasDriver() {
  int driver = 0;
  return cudaDriverGetVersion(&driver) != cudaSuccess || driver != 0;
}

// Success if there is a GPU. Otherwise the error, and in `reason` a text for the user.
inline cudaError_t LookForGpus(const char** reason) {
  if (!HasDriver()) {
    *reason = "no NVIDIA driver is installed";
    return cudaErrorInsufficientDriver;
  }
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  *reason = error == cudaErrorNoDevice ? "there is none" : cudaGetErrorString(error);
  return error;
}

}  // namespace attnlab::device

#endif  // ATTENTION_CUDA_LOOK_FOR_GPUS_H_
