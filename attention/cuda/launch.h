// All device kernels are launched through one function, so that an observer can see what ran. For
// example, a test proves which compute capability the code was built for.
//
//   cudaError_t error = device::Launch(SoftmaxKernel<float>, grid, block, shared_bytes, stream,
//                                      scores, probabilities);
#ifndef ATTENTION_CUDA_LAUNCH_H_
#define ATTENTION_CUDA_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "cuda_runtime.h"

namespace attnlab::device {

// What was launched. `function` is what cudaFuncGetAttributes() takes.
struct LaunchRecord {
  const void* function = nullptr;
  dim3 grid, block;
  size_t shared_bytes = 0;  // dynamic shared memory a block
  uint32_t cluster = 1;     // blocks of a cluster, which divides grid.x; above 1 from 9.0 on
  // The kernel knows how to start before the one ahead of it has ended (device/early_start.cuh). It does so
  // if the code that runs is for 9.0 or later.
  bool early = false;
  cudaStream_t stream = nullptr;
};

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // Called before the launch, on the thread that launches.
  virtual void OnLaunch(const LaunchRecord& record) = 0;
};

// From now on, every launch in the process is reported to this observer; nullptr: to none. Returns
// the observer before it. An observer must outlive the launches.
LaunchObserver* SetLaunchObserver(LaunchObserver* observer);

// Launches, reported to the observer. Asynchronous; the error is that of the launch
// alone. Above 32 KiB of dynamic shared memory, the first launch of a function on a device calls
// cudaFuncSetAttribute(): every kernel may use 48 KiB, of which it may declare up to 16 KiB
// statically. More than the device has is cudaErrorInvalidValue.
cudaError_t LaunchFunction(const LaunchRecord& record, void** arguments);

// Excludes a parameter from type deduction: the kernel alone determines its type.
template <typename T>
struct AsDeclared {
  using Type = T;
};

// The same for a __global__ function; arguments are converted to the types of its parameters.
template <typename... Parameters>
cudaError_t Launch(void (*kernel)(Parameters...), LaunchRecord record,
                   typename AsDeclared<Parameters>::Type... arguments) {
  record.function = reinterpret_cast<const void*>(kernel);
  // The extra element is for kernels without parameters: an array cannot be empty.
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  return LaunchFunction(record, pointers);
}
template <typename... Parameters>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, typename AsDeclared<Parameters>::Type... arguments) {
  LaunchRecord record;
  record.grid = grid, record.block = block;
  record.shared_bytes = shared_bytes, record.stream = stream;
  return Launch(kernel, record, arguments...);
}

}  // namespace attnlab::device

#endif  // ATTENTION_CUDA_LAUNCH_H_
