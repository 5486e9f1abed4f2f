// The launches of this directory.
#ifndef ATTENTION_FP8_LAUNCH_H_
#define ATTENTION_FP8_LAUNCH_H_

#include <cstddef>

#include "attention/device/element.h"
#include "attention/fp8/quantize_rows.h"
#include "cuda_runtime.h"

namespace attnlab::fp8 {

// Dynamic shared memory of a thread block, in bytes: elements of 16 bits and, of rows that are rotated whole, angles.
inline size_t SharedBytes(const QuantizeRows& rows, bool angles) {
  return static_cast<size_t>(rows.block) * rows.d * (angles ? 2 + sizeof(float) : 2);
}
// At most, beside it: signs and the largest sizes of warps.
constexpr size_t kMoreShared = 2048;

// At most 3 tensors of the same sequences. `element`: fp16 or bf16. Rows begin at multiples of 16 bytes, and
// HasCode(rows.d).
// A thread block may have SharedBytes(rows, false) + kMoreShared.
cudaError_t LaunchQuantize(const QuantizeRows* rows, int count, device::Element element,
                           cudaStream_t stream);

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_LAUNCH_H_
