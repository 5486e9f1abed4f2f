#include "attention/fp8/quantize_gpu.h"

#include "attention/cuda/call.h"
#include "attention/device/element_of.h"
#include "attention/fp8/launch.h"

namespace attnlab::fp8 {

absl::Status QuantizeOnGpu(int ordinal, absl::Span<const QuantizeRows> rows, DType dtype,
                           void* stream) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  return cuda_backend::ToStatus(
      LaunchQuantize(rows.data(), static_cast<int>(rows.size()), device::ElementOf(dtype),
                     static_cast<cudaStream_t>(stream)),
      "quantize");
}

}  // namespace attnlab::fp8
