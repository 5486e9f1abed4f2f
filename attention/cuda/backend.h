// The few calls to the CUDA runtime that host code needs: devices, memory, copies, timing.
//
// One of two files implements it: cuda_backend.cc where a CUDA toolkit was found at build time,
// cuda_backend_none.cc elsewhere. So that callers need no #ifdef, and a program built with a
// toolkit still runs on a machine with no GPU. Kernels do not use it.
#ifndef ATTENTION_CUDA_BACKEND_H_
#define ATTENTION_CUDA_BACKEND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"

namespace attnlab::cuda_backend {

// Unimplemented without a toolkit, Unavailable without a driver or a GPU.
absl::StatusOr<std::vector<DeviceInfo>> Devices();

// What is below the figures of a GPU.
struct Versions {
  std::string driver;        // of the driver, as nvidia-smi shows it: "570.124.06"; "" if not told
  std::string cuda_driver;   // the CUDA that the driver is good for: "13.0"
  std::string cuda_runtime;  // the CUDA that this program was built with: "12.9"
};
absl::StatusOr<Versions> GetVersions();

// Aligned to 256 bytes. ResourceExhausted when the memory is not there.
absl::StatusOr<void*> Allocate(int ordinal, int64_t bytes);
absl::Status Free(int ordinal, void* data);

// Bytes of the device's memory that nobody has taken yet.
absl::StatusOr<int64_t> FreeMemory(int ordinal);

// Synchronous with the host.
absl::Status CopyToDevice(int ordinal, void* to, const void* from, int64_t bytes);
absl::Status CopyToHost(int ordinal, void* to, const void* from, int64_t bytes);
absl::Status Fill(int ordinal, void* data, uint8_t value, int64_t bytes);

// OK for memory that kernels of that GPU were given for their own: of the GPU, or managed.
// InvalidArgument for memory of the host or of another GPU; the message has no field name before
// it. Waits for nothing, and may be called while a stream is captured.
absl::Status CheckAddress(int ordinal, const void* data);

// Waits for all work of the device, and returns the error that it had, if any.
absl::Status Synchronize(int ordinal);

// Two points in a stream (nullptr: the default stream) and the time between them.
class Timer {
 public:
  static absl::StatusOr<Timer> Create(int ordinal);
  Timer(Timer&& other) noexcept;
  Timer& operator=(Timer&&) = delete;
  ~Timer();

  absl::Status Start(void* stream);
  // Waits for the end point.
  absl::StatusOr<double> StopSeconds(void* stream);

 private:
  Timer() = default;
  int ordinal_ = 0;
  void* start_ = nullptr;  // cudaEvent_t
  void* stop_ = nullptr;
};

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_BACKEND_H_
