// What this directory does on a GPU. Without a CUDA toolkit, both return Unimplemented.
#ifndef PAGED_SHARED_PREFIX_GPU_H_
#define PAGED_SHARED_PREFIX_GPU_H_

#include "absl/status/status.h"
#include "attention/core/dtype.h"
#include "paged/shared_prefix/rows.h"

namespace attnlab::paged {

// `dtype`: of Q and O.
absl::Status PrefixInputsOnGpu(int ordinal, const PrefixInputs& inputs, DType dtype, void* stream);
absl::Status PrefixMergeOnGpu(int ordinal, const PrefixMerge& merge, DType dtype, void* stream);

}  // namespace attnlab::paged

#endif  // PAGED_SHARED_PREFIX_GPU_H_
