// What host code that calls the CUDA runtime itself needs, kernel families among it: errors as
// absl::Status, and the current device.
#ifndef ATTENTION_CUDA_CALL_H_
#define ATTENTION_CUDA_CALL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cuda_runtime_api.h"

namespace attnlab::cuda_backend {

// OK, or "what: what CUDA says of it": ResourceExhausted for memory, Unavailable where there is no
// driver or GPU, Unimplemented where the program has no code for the GPU, otherwise Internal.
// Errors that CUDA would report again at its next call are taken back, if they can be.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

// Makes a device current on this thread, and the caller's one again at the end.
class ScopedDevice {
 public:
  explicit ScopedDevice(int ordinal);
  ~ScopedDevice();
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  int previous_ = -1;  // to go back to; -1: the device was current already
  absl::Status status_;
};

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_CALL_H_
