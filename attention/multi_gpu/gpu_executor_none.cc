// A build without a CUDA toolkit.
#include "attention/multi_gpu/gpu_executor.h"

namespace attnlab::multi_gpu {

absl::StatusOr<std::unique_ptr<Executor>> MakeGpuExecutor(int, void*) {
  return absl::UnimplementedError("this program was built without a CUDA toolkit");
}

}  // namespace attnlab::multi_gpu
