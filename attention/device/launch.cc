#include "attention/device/launch.h"

#include <atomic>

namespace attnlab::device {
namespace {

std::atomic<LaunchObserver*> observer{nullptr};

// Every kernel may have 48 KiB without asking, and what it declares itself is part of that: up to
// 16 here.
constexpr size_t kSharedBytesOfAll = 32 << 10;

}  // namespace

LaunchObserver* SetLaunchObserver(LaunchObserver* next) { return observer.exchange(next); }

cudaError_t LaunchFunction(const LaunchRecord& record, void** arguments) {
  if (LaunchObserver* const seen_by = observer.load(std::memory_order_acquire)) {
    seen_by->OnLaunch(record);
  }
  if (record.shared_bytes > kSharedBytesOfAll) {
    const cudaError_t error =
        cudaFuncSetAttribute(record.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(record.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return cudaLaunchKernel(record.function, record.grid, record.block, arguments,
                          record.shared_bytes, record.stream);
}

}  // namespace attnlab::device
