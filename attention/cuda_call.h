// What the files that call the CUDA runtime share: errors as Status, and the current device.
#ifndef ATTENTION_CUDA_CALL_H_
#define ATTENTION_CUDA_CALL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace attnlab::cuda_backend {

// OK, or "WHAT: what CUDA says of it". Takes the error out of the runtime, which would otherwise
// report it once more from its next call.
inline absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string message = absl::StrCat(what, ": ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

// Makes a device current, and the caller's one again when done.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal) {
    status_ = ToStatus(cudaGetDevice(&previous_), "cudaGetDevice");
    if (!status_.ok()) return;
    status_ = ToStatus(cudaSetDevice(ordinal), absl::StrCat("cuda:", ordinal));
    if (!status_.ok()) previous_ = -1;
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;
  ~ScopedDevice() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }
  const absl::Status& status() const { return status_; }

 private:
  int previous_ = -1;
  absl::Status status_;
};

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_CALL_H_
