// A build without a CUDA toolkit.
#include "absl/status/status.h"
#include "paged/gpu.h"

namespace attnlab::paged {
namespace {

absl::Status None() {
  return absl::UnimplementedError("paged: this program was built without a CUDA toolkit");
}

}  // namespace

absl::Status AppendOnGpu(int, const AppendArguments&, DType, DType, bool, void*) { return None(); }
absl::Status PatchOnGpu(int, const TablePatch&, void*) { return None(); }
absl::Status CopyOnGpu(int, void*, const void*, int64_t, void*) { return None(); }

}  // namespace attnlab::paged
