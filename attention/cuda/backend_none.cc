// A build without a CUDA toolkit: there are no GPUs.
#include "attention/cuda/backend.h"

namespace attnlab::cuda_backend {
namespace {

absl::Status NotBuilt() {
  return absl::UnimplementedError("this program was built without a CUDA toolkit");
}

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> Devices() { return NotBuilt(); }
absl::StatusOr<Versions> GetVersions() { return NotBuilt(); }
absl::StatusOr<void*> Allocate(int, int64_t) { return NotBuilt(); }
absl::Status Free(int, void*) { return NotBuilt(); }
absl::StatusOr<int64_t> FreeMemory(int) { return NotBuilt(); }
absl::Status CopyToDevice(int, void*, const void*, int64_t) { return NotBuilt(); }
absl::Status CopyToHost(int, void*, const void*, int64_t) { return NotBuilt(); }
absl::Status Fill(int, void*, uint8_t, int64_t) { return NotBuilt(); }
absl::Status CheckAddress(int, const void*) { return NotBuilt(); }
absl::Status CheckHostAddress(const void*) { return absl::OkStatus(); }
absl::Status Synchronize(int) { return NotBuilt(); }

absl::StatusOr<Timer> Timer::Create(int) { return NotBuilt(); }
Timer::Timer(Timer&&) noexcept = default;
Timer::~Timer() = default;
absl::Status Timer::Start(void*) { return NotBuilt(); }
absl::Status Timer::Stop(void*) { return NotBuilt(); }
absl::StatusOr<double> Timer::Seconds() { return NotBuilt(); }

}  // namespace attnlab::cuda_backend
