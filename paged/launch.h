// The launches of this directory, as the sources that are compiled for the GPU offer them.
#ifndef PAGED_LAUNCH_H_
#define PAGED_LAUNCH_H_

#include "cuda_runtime.h"
#include "paged/append_rows.h"
#include "paged/block_table_patch.h"

namespace attnlab::paged {

enum class AppendElement { kFloat32, kFloat16, kBFloat16, kFloat8E4M3 };

// See gpu.h. `to` is `from`, or fp8 under 16 bits.
cudaError_t LaunchAppend(const AppendArguments& arguments, AppendElement from, AppendElement to,
                         bool wide, cudaStream_t stream);

cudaError_t LaunchPatch(const TablePatch& patch, cudaStream_t stream);

}  // namespace attnlab::paged

#endif  // PAGED_LAUNCH_H_
