#include "paged/gpu.h"

#include "attention/cuda/call.h"
#include "paged/launch.h"

namespace attnlab::paged {
namespace {

AppendElement ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return AppendElement::kFloat16;
    case DType::kBFloat16:
      return AppendElement::kBFloat16;
    case DType::kFloat8E4M3:
      return AppendElement::kFloat8E4M3;
    case DType::kFloat32:
    case DType::kFloat8E5M2:  // declined
      break;
  }
  return AppendElement::kFloat32;
}

}  // namespace

absl::Status AppendOnGpu(int ordinal, const AppendArguments& arguments, DType from, DType to,
                         bool wide, void* stream) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  return cuda_backend::ToStatus(LaunchAppend(arguments, ElementOf(from), ElementOf(to), wide,
                                             static_cast<cudaStream_t>(stream)),
                                "append");
}

absl::Status PatchOnGpu(int ordinal, const TablePatch& patch, void* stream) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  return cuda_backend::ToStatus(LaunchPatch(patch, static_cast<cudaStream_t>(stream)),
                                "block table");
}

absl::Status CopyOnGpu(int ordinal, void* to, const void* from, int64_t bytes, void* stream) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  return cuda_backend::ToStatus(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
      "copy of a page");
}

}  // namespace attnlab::paged
