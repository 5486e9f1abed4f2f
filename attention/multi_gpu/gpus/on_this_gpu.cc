#include "attention/multi_gpu/gpus/on_this_gpu.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"

namespace attnlab::multi_gpu {

absl::StatusOr<bool> OnThisGpu(const Transfer& transfer, int ordinal) {
  int there = 0, given = 0;
  for (const void* const data : {transfer.send, static_cast<const void*>(transfer.receive)}) {
    if (data == nullptr) continue;
    cudaPointerAttributes a = {};
    absl::Status s =
        cuda_backend::ToStatus(cudaPointerGetAttributes(&a, data), "cudaPointerGetAttributes");
    if (!s.ok()) return s;
    ++given;
    if (a.type != cudaMemoryTypeDevice && a.type != cudaMemoryTypeManaged) continue;
    ++there;
    if (a.type == cudaMemoryTypeDevice && a.device != ordinal) {
      return absl::InvalidArgumentError(
          absl::StrCat("memory of a transfer: on cuda:", a.device, ", must be on cuda:", ordinal));
    }
  }
  if (there != 0 && there != given) {
    return absl::InvalidArgumentError(
        "memory of a transfer: must be all in host memory or all on a GPU");
  }
  return there != 0;
}

}  // namespace attnlab::multi_gpu
