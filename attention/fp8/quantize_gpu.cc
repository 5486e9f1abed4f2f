#include "attention/fp8/quantize_gpu.h"

#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"
#include "attention/device/element_of.h"
#include "attention/fp8/launch.h"

namespace attnlab::fp8 {

absl::Status QuantizeOnGpu(int ordinal, absl::Span<const QuantizeRows> rows, DType dtype,
                           void* stream) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  int most = 0;
  const cudaError_t error =
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal);
  if (error != cudaSuccess) return cuda_backend::ToStatus(error, "quantize");
  for (const QuantizeRows& a : rows) {
    const size_t bytes = SharedBytes(a, /*angles=*/false) + kMoreShared;
    if (bytes <= static_cast<size_t>(most)) continue;
    return absl::UnimplementedError(absl::StrCat(
        "scaleblock: ", a.block, " rows of head dim ", a.d, " take ", bytes,
        " bytes of shared memory, but a block of threads on this GPU may have ", most));
  }
  return cuda_backend::ToStatus(
      LaunchQuantize(rows.data(), static_cast<int>(rows.size()), device::ElementOf(dtype),
                     static_cast<cudaStream_t>(stream)),
      "quantize");
}

}  // namespace attnlab::fp8
