// The part of Quantize() that a GPU does.
#ifndef ATTENTION_FP8_QUANTIZE_GPU_H_
#define ATTENTION_FP8_QUANTIZE_GPU_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/core/dtype.h"
#include "attention/fp8/quantize_rows.h"

namespace attnlab::fp8 {

// On GPU `ordinal`, at most 3 tensors of the same sequences. `dtype`: fp16 or bf16.
absl::Status QuantizeOnGpu(int ordinal, absl::Span<const QuantizeRows> rows, DType dtype,
                           void* stream);

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_QUANTIZE_GPU_H_
