// A build without a CUDA toolkit.
#include "attention/fp8/quantize_gpu.h"

namespace attnlab::fp8 {

absl::Status QuantizeOnGpu(int, absl::Span<const QuantizeRows>, DType, void*) {
  return absl::UnimplementedError("fp8: this program was built without a CUDA toolkit");
}

}  // namespace attnlab::fp8
