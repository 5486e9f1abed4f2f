// What this directory does on a GPU. Without a CUDA toolkit, all return Unimplemented.
#ifndef PAGED_GPU_H_
#define PAGED_GPU_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/core/dtype.h"
#include "paged/append_rows.h"
#include "paged/block_table_patch.h"

namespace attnlab::paged {

// Append(). `from` is the dtype of the new rows and of Q, `to` that of the pages. `wide`: pieces are
// 16 bytes of the new rows, else single elements.
absl::Status AppendOnGpu(int ordinal, const AppendArguments& arguments, DType from, DType to,
                         bool wide, void* stream);

// Applies all entries.
absl::Status PatchOnGpu(int ordinal, const TablePatch& patch, void* stream);

// Copies between any two of a GPU's and the host's memory, on the stream.
absl::Status CopyOnGpu(int ordinal, void* to, const void* from, int64_t bytes, void* stream);

}  // namespace attnlab::paged

#endif  // PAGED_GPU_H_
