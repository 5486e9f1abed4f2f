#include "attention/cuda/launch.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "attention/cuda/code_capability.h"

namespace attnlab::device {
namespace {

std::atomic<LaunchObserver*> observer{nullptr};

// Every kernel may use 48 KiB without asking. That includes what it declares statically: up to 16
// KiB in this tree.
constexpr size_t kSharedBytesOfAll = 32 << 10;

// Raises the limits of functions on a device. Remembers them, so that only the first launch asks.
class SharedLimits {
 public:
  // Allows the function so many bytes on the current device. `again`: earlier requests were lost.
  cudaError_t Raise(const void* function, size_t bytes, bool again) {
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device)) return error;
    const std::pair<const void*, int> key(function, device);
    if (!again) {
      const std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto it = bytes_.find(key);
      if (it != bytes_.end() && it->second >= bytes) return cudaSuccess;
    }
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    const auto it = bytes_.find(key);
    if (!again && it != bytes_.end() && it->second >= bytes) return cudaSuccess;
    const cudaError_t error = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (error == cudaSuccess) bytes_[key] = bytes;
    return error;
  }

 private:
  std::shared_mutex mutex_;
  std::map<std::pair<const void*, int>, size_t> bytes_;
};

SharedLimits& Limits() {
  static SharedLimits* const kLimits = new SharedLimits;  // launches may outlive static objects
  return *kLimits;
}

// Whether the code that runs on the current device has instructions that wait for the kernel ahead.
// Asked once for each device.
bool CanStartEarly() {
  constexpr int kMostDevices = 64;
  static std::array<std::atomic<int>, kMostDevices> capabilities = {};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kMostDevices) return false;
  int capability = capabilities[device].load(std::memory_order_relaxed);
  if (capability == 0) {
    if (CodeCapability(&capability) != cudaSuccess) {
      cudaGetLastError();  // not sticky
      return false;
    }
    capabilities[device].store(capability, std::memory_order_relaxed);
  }
  return capability >= 90;
}

cudaError_t LaunchOnce(const LaunchRecord& record, void** arguments) {
  const bool early = record.early && CanStartEarly();
  if (record.cluster == 1 && !early) {
    return cudaLaunchKernel(record.function, record.grid, record.block, arguments,
                            record.shared_bytes, record.stream);
  }
  cudaLaunchAttribute attributes[2] = {};
  int count = 0;
  if (record.cluster != 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = record.cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  if (early) {
    cudaLaunchAttribute& order = attributes[count++];
    order.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    order.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = record.grid, config.blockDim = record.block;
  config.dynamicSmemBytes = record.shared_bytes;
  config.stream = record.stream;
  config.attrs = attributes, config.numAttrs = count;
  return cudaLaunchKernelExC(&config, record.function, arguments);
}

}  // namespace

LaunchObserver* SetLaunchObserver(LaunchObserver* next) { return observer.exchange(next); }

cudaError_t LaunchFunction(const LaunchRecord& record, void** arguments) {
  if (LaunchObserver* const seen_by = observer.load(std::memory_order_acquire)) {
    seen_by->OnLaunch(record);
  }
  const bool asks = record.shared_bytes > kSharedBytesOfAll;
  for (bool again = false;; again = true) {
    if (asks) {
      const cudaError_t error = Limits().Raise(record.function, record.shared_bytes, again);
      if (error != cudaSuccess) return error;
    }
    const cudaError_t error = LaunchOnce(record, arguments);
    // cudaDeviceReset() drops the limits that were set, so try once more.
    if (error != cudaErrorInvalidValue || !asks || again) return error;
    cudaGetLastError();
  }
}

}  // namespace attnlab::device
