// Helpers for host code that calls the CUDA runtime itself, such as kernel families: errors as
// absl::Status, and the current device.
#ifndef ATTENTION_CUDA_CALL_H_
#define ATTENTION_CUDA_CALL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace attnlab::cuda_backend {

// OK, or an error with the message "what: CUDA's description". ResourceExhausted for memory,
// Unavailable without a driver or GPU, Unimplemented if the program has no code for the GPU,
// otherwise Internal. Clears the error where possible, so that CUDA does not report it again.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

// Makes a device current on this thread, and restores the caller's at the end of its life.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal);
  ~ScopedDevice();
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  int previous_ = -1;  // the device to restore; -1: it was current already
  absl::Status status_;
};

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_CALL_H_
