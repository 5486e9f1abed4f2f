// Inputs of benchmarks.
#ifndef PAGED_RANDOM_ROWS_H_
#define PAGED_RANDOM_ROWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/cuda/memory.h"

namespace attnlab::paged {

// So many random elements of fp32, fp16 or bf16 on the device. 65536 are drawn, and repeated.
absl::StatusOr<Buffer> RandomRows(Device device, DType dtype, int64_t elements);

}  // namespace attnlab::paged

#endif  // PAGED_RANDOM_ROWS_H_
