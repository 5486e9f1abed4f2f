// The launches of this directory.
#ifndef ATTENTION_FP8_LAUNCH_H_
#define ATTENTION_FP8_LAUNCH_H_

#include "attention/device/element.h"
#include "attention/fp8/quantize_rows.h"
#include "cuda_runtime.h"

namespace attnlab::fp8 {

// At most 3 tensors of the same sequences. `element`: fp16 or bf16. Rows begin at multiples of 16 bytes, and
// HasCode(rows.d).
cudaError_t LaunchQuantize(const QuantizeRows* rows, int count, device::Element element,
                           cudaStream_t stream);

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_LAUNCH_H_
