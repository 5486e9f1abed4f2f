#include "attention/device/launch.h"

#include <atomic>

namespace attnlab::device {
namespace {

std::atomic<LaunchObserver*> observer{nullptr};

}  // namespace

LaunchObserver* SetLaunchObserver(LaunchObserver* next) { return observer.exchange(next); }

cudaError_t LaunchFunction(const LaunchRecord& record, void** arguments) {
  if (LaunchObserver* const seen_by = observer.load(std::memory_order_acquire)) {
    seen_by->OnLaunch(record);
  }
  return cudaLaunchKernel(record.function, record.grid, record.block, arguments,
                          record.shared_bytes, record.stream);
}

}  // namespace attnlab::device
