#include "attention/cuda/call.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace attnlab::cuda_backend {

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", cudaGetErrorString(error));
  // Clears the error, so that the next call does not report it again.
  cudaGetLastError();
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return absl::UnavailableError(message);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return absl::UnimplementedError(absl::StrCat(
          message, "; --//third_party/cuda:archs says what the program was built for"));
    default:
      return absl::InternalError(message);
  }
}

ScopedDevice::ScopedDevice(int ordinal) {
  int current = 0;
  status_ = ToStatus(cudaGetDevice(&current), "cudaGetDevice");
  if (!status_.ok() || current == ordinal) return;
  const cudaError_t error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) {
    previous_ = current;
  } else {
    status_ = ToStatus(error, absl::StrCat("cuda:", ordinal));
  }
}

ScopedDevice::~ScopedDevice() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

}  // namespace attnlab::cuda_backend
