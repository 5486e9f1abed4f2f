// A build without a CUDA toolkit.
#include "absl/status/status.h"
#include "paged/shared_prefix/gpu.h"

namespace attnlab::paged {
namespace {

absl::Status None() {
  return absl::UnimplementedError("shared prefix: this program was built without a CUDA toolkit");
}

}  // namespace

absl::Status PrefixInputsOnGpu(int, const PrefixInputs&, DType, void*) { return None(); }
absl::Status PrefixMergeOnGpu(int, const PrefixMerge&, DType, void*) { return None(); }

}  // namespace attnlab::paged
