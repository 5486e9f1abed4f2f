// Where the memory of a transfer lies.
#ifndef ATTENTION_MULTI_GPU_GPUS_ON_THIS_GPU_H_
#define ATTENTION_MULTI_GPU_GPUS_ON_THIS_GPU_H_

#include "absl/status/statusor.h"
#include "attention/multi_gpu/communicator.h"

namespace attnlab::multi_gpu {

// Whether it lies on GPU `ordinal`; false: in host memory. InvalidArgument for another GPU, and for both.
absl::StatusOr<bool> OnThisGpu(const Transfer& transfer, int ordinal);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_GPUS_ON_THIS_GPU_H_
