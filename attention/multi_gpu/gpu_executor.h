// The GPU's part of executor.h.
#ifndef ATTENTION_MULTI_GPU_GPU_EXECUTOR_H_
#define ATTENTION_MULTI_GPU_GPU_EXECUTOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "attention/multi_gpu/executor.h"

namespace attnlab::multi_gpu {

// Unimplemented without a CUDA toolkit.
absl::StatusOr<std::unique_ptr<Executor>> MakeGpuExecutor(int ordinal, void* stream);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_GPU_EXECUTOR_H_
