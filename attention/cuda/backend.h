// The few calls to the CUDA runtime that host code needs: devices, memory, copies, timing.
//
// One of two files implements it: backend.cc if a CUDA toolkit was found at build time,
// backend_none.cc otherwise. Callers therefore need no #ifdef, and a program built with a toolkit
// still runs on a machine without a GPU. Kernels do not use it.
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

// The software versions behind measurements on a GPU.
struct Versions {
  std::string driver;        // as nvidia-smi shows it: "570.124.06"; "" if unknown
  std::string cuda_driver;   // the newest CUDA that the driver supports: "13.0"
  std::string cuda_runtime;  // the CUDA that this program was built with: "12.9"
};
absl::StatusOr<Versions> GetVersions();

// Aligned to 256 bytes. ResourceExhausted if there is not enough memory.
absl::StatusOr<void*> Allocate(int ordinal, int64_t bytes);
absl::Status Free(int ordinal, void* data);

// The bytes of device memory that are free now.
absl::StatusOr<int64_t> FreeMemory(int ordinal);

// Synchronous with the host.
absl::Status CopyToDevice(int ordinal, void* to, const void* from, int64_t bytes);
absl::Status CopyToHost(int ordinal, void* to, const void* from, int64_t bytes);
absl::Status Fill(int ordinal, void* data, uint8_t value, int64_t bytes);

// OK if kernels on that GPU may use the memory: it was allocated on the GPU, or it is managed.
// InvalidArgument for memory of the host or of another GPU; the message has no field name before
// it. Does not wait, and may be called while a stream is captured.
absl::Status CheckAddress(int ordinal, const void* data);

// OK unless the memory is of a GPU alone. InvalidArgument then; the message has no field name before it.
absl::Status CheckHostAddress(const void* data);

// Waits for all work of the device, and returns its error, if any.
absl::Status Synchronize(int ordinal);

// Measures the time between two points in a stream (nullptr: the default stream).
class Timer {
 public:
  static absl::StatusOr<Timer> Create(int ordinal);
  Timer(Timer&& other) noexcept;
  Timer& operator=(Timer&&) = delete;
  ~Timer();

  absl::Status Start(void* stream);
  absl::Status Stop(void* stream);
  // Between the two points. Waits until the stream reaches the second one.
  absl::StatusOr<double> Seconds();
  absl::StatusOr<double> StopSeconds(void* stream) {
    const absl::Status s = Stop(stream);
    return s.ok() ? Seconds() : s;
  }

 private:
  Timer() = default;
  int ordinal_ = 0;
  void* start_ = nullptr;  // cudaEvent_t
  void* stop_ = nullptr;
};

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_BACKEND_H_
