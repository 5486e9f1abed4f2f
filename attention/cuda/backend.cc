// The CUDA runtime behind backend.h.
#include "attention/cuda/backend.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"
#include "attention/cuda/look_for_gpus.h"
#include "cuda_runtime_api.h"

namespace attnlab::cuda_backend {
namespace {

absl::StatusOr<DeviceInfo> Describe(int ordinal) {
  cudaDeviceProp properties;
  if (absl::Status s =
          ToStatus(cudaGetDeviceProperties(&properties, ordinal), absl::StrCat("cuda:", ordinal));
      !s.ok()) {
    return s;
  }
  DeviceInfo info;
  info.device = Device::Cuda(ordinal);
  info.name = properties.name;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.last_level_cache_bytes = properties.l2CacheSize;
  info.compute_capability = properties.major * 10 + properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  int khz = 0, bits = 0;
  absl::Status s = ToStatus(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, ordinal),
                            absl::StrCat("cuda:", ordinal));
  s.Update(ToStatus(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, ordinal),
                    absl::StrCat("cuda:", ordinal)));
  if (!s.ok()) return s;
  info.memory_bytes_per_second = 2e3 * khz * bits / 8;  // two transfers per clock
  info.shared_memory_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  info.registers_per_multiprocessor = properties.regsPerMultiprocessor;
  return info;
}

// 13000 -> "13.0".
std::string CudaVersion(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// The first word of digits and dots in the kernel module's description of itself.
std::string DriverVersion() {
  for (const char* path : {"/sys/module/nvidia/version", "/proc/driver/nvidia/version"}) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
      if (word.find('.') != std::string::npos &&
          word.find_first_not_of("0123456789.") == std::string::npos) {
        return word;
      }
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<Versions> GetVersions() {
  int driver = 0, runtime = 0;
  absl::Status s = ToStatus(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (s.ok()) s = ToStatus(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  if (!s.ok()) return s;
  return Versions{DriverVersion(), CudaVersion(driver), CudaVersion(runtime)};
}

absl::StatusOr<std::vector<DeviceInfo>> Devices() {
  if (!device::HasDriver()) {
    return absl::UnavailableError("looking for GPUs: no NVIDIA driver is installed");
  }
  int count = 0;
  if (absl::Status s = ToStatus(cudaGetDeviceCount(&count), "looking for GPUs"); !s.ok()) return s;
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    absl::StatusOr<DeviceInfo> info = Describe(i);
    if (!info.ok()) return info.status();
    devices.push_back(*std::move(info));
  }
  return devices;
}

absl::StatusOr<void*> Allocate(int ordinal, int64_t bytes) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  void* data = nullptr;
  absl::Status s = ToStatus(cudaMalloc(&data, static_cast<size_t>(bytes)),
                            absl::StrCat("allocating ", bytes, " bytes on cuda:", ordinal));
  if (!s.ok()) return s;
  return data;
}

absl::Status Free(int ordinal, void* data) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  return ToStatus(cudaFree(data), "cudaFree");
}

absl::StatusOr<int64_t> FreeMemory(int ordinal) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  size_t free = 0, total = 0;
  absl::Status s = ToStatus(cudaMemGetInfo(&free, &total), absl::StrCat("cuda:", ordinal));
  if (!s.ok()) return s;
  return static_cast<int64_t>(free);
}

absl::Status CopyToDevice(int ordinal, void* to, const void* from, int64_t bytes) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  absl::Status s =
      ToStatus(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
               "copying to the GPU");
  if (!s.ok()) return s;
  // cudaMemcpy may return when the bytes have left `from`, and other streams do not wait for the rest.
  return ToStatus(cudaStreamSynchronize(nullptr), "copying to the GPU");
}

absl::Status CopyToHost(int ordinal, void* to, const void* from, int64_t bytes) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  return ToStatus(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
                  "copying from the GPU");
}

absl::Status Fill(int ordinal, void* data, uint8_t value, int64_t bytes) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  absl::Status s =
      ToStatus(cudaMemset(data, value, static_cast<size_t>(bytes)), "filling GPU memory");
  if (!s.ok()) return s;
  return ToStatus(cudaDeviceSynchronize(), "filling GPU memory");
}

absl::Status CheckAddress(int ordinal, const void* data) {
  cudaPointerAttributes attributes;
  absl::Status s =
      ToStatus(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  if (!s.ok()) {
    cudaGetLastError();  // not sticky
    return s;
  }
  if (attributes.type == cudaMemoryTypeManaged) return absl::OkStatus();
  if (attributes.type == cudaMemoryTypeDevice && attributes.device == ordinal) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "address ", reinterpret_cast<uintptr_t>(data), " is not memory of cuda:", ordinal, " but of ",
      attributes.type == cudaMemoryTypeDevice ? absl::StrCat("cuda:", attributes.device)
                                              : "the host"));
}

absl::Status CheckHostAddress(const void* data) {
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();  // not sticky: no GPU
    return absl::OkStatus();
  }
  if (attributes.type != cudaMemoryTypeDevice) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("on cuda:", attributes.device, ", must be in host memory"));
}

absl::Status Synchronize(int ordinal) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  return ToStatus(cudaDeviceSynchronize(), absl::StrCat("waiting for cuda:", ordinal));
}

absl::StatusOr<Timer> Timer::Create(int ordinal) {
  ScopedDevice device(ordinal);
  if (!device.status().ok()) return device.status();
  Timer timer;
  timer.ordinal_ = ordinal;
  for (void** event : {&timer.start_, &timer.stop_}) {
    if (absl::Status s =
            ToStatus(cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)), "cudaEventCreate");
        !s.ok()) {
      return s;
    }
  }
  return timer;
}

Timer::Timer(Timer&& other) noexcept
    : ordinal_(other.ordinal_),
      start_(std::exchange(other.start_, nullptr)),
      stop_(std::exchange(other.stop_, nullptr)) {}

Timer::~Timer() {
  if (start_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(start_));
  if (stop_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(stop_));
}

absl::Status Timer::Start(void* stream) {
  ScopedDevice device(ordinal_);
  if (!device.status().ok()) return device.status();
  return ToStatus(
      cudaEventRecord(static_cast<cudaEvent_t>(start_), static_cast<cudaStream_t>(stream)),
      "cudaEventRecord");
}

absl::Status Timer::Stop(void* stream) {
  ScopedDevice device(ordinal_);
  if (!device.status().ok()) return device.status();
  return ToStatus(
      cudaEventRecord(static_cast<cudaEvent_t>(stop_), static_cast<cudaStream_t>(stream)),
      "cudaEventRecord");
}

absl::StatusOr<double> Timer::Seconds() {
  const auto stop = static_cast<cudaEvent_t>(stop_);
  absl::Status s = ToStatus(cudaEventSynchronize(stop), "timed work on the GPU");
  float milliseconds = 0;
  if (s.ok()) {
    s = ToStatus(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start_), stop),
                 "cudaEventElapsedTime");
  }
  if (!s.ok()) return s;
  return milliseconds * 1e-3;
}

}  // namespace attnlab::cuda_backend
