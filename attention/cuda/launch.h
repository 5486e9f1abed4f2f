// Launches of device kernels, all through one function, so that whoever wants to know what ran can
// be told, such as a test that proves for which compute capability the code was built.
//
//   cudaError_t error = device::Launch(SoftmaxKernel<float>, grid, block, shared_bytes, stream,
//                                      scores, probabilities);
#ifndef ATTENTION_CUDA_LAUNCH_H_
#define ATTENTION_CUDA_LAUNCH_H_

#include <cstddef>

#include "cuda_runtime.h"

namespace attnlab::device {

// What was launched. `function` is what cudaFuncGetAttributes() takes.
struct LaunchRecord {
  const void* function = nullptr;
  dim3 grid, block;
  size_t shared_bytes = 0;  // dynamic shared memory a block
  cudaStream_t stream = nullptr;
};

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // Before the launch, on the thread that launches.
  virtual void OnLaunch(const LaunchRecord& record) = 0;
};

// Tells this observer of every launch in the process from now on; nullptr: nobody. Returns the one
// before. The observer outlives the launches.
LaunchObserver* SetLaunchObserver(LaunchObserver* observer);

// cudaLaunchKernel() that the observer sees. Asynchronous; the error is that of the launch alone.
// For more shared memory than every kernel may have (48 KiB, with up to 16 that the kernel declares
// itself) the first launch of a function on a device calls cudaFuncSetAttribute(); what the device
// does not have is cudaErrorInvalidValue.
cudaError_t LaunchFunction(const LaunchRecord& record, void** arguments);

// Keeps a parameter out of the deduction of its type: the kernel alone says what it is.
template <typename T>
struct AsDeclared {
  using Type = T;
};

// The same for a __global__ function and its arguments, which are converted to its parameters.
template <typename... Parameters>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, typename AsDeclared<Parameters>::Type... arguments) {
  // One more, for kernels without parameters.
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
  return LaunchFunction({reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream},
                        pointers);
}

}  // namespace attnlab::device

#endif  // ATTENTION_CUDA_LAUNCH_H_
