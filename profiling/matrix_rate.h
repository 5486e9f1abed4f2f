// How fast cuBLAS multiplies large matrices on tensor cores: what a tuned library gets out of a
// GPU.
#ifndef PROFILING_MATRIX_RATE_H_
#define PROFILING_MATRIX_RATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::profiling {

enum class MatrixType { kBFloat16, kHalf, kTf32, kFp8 };

// FLOP/s of the current device: the median of about 20 products of 8192 x 8192 random numbers. Sums
// are fp32; results are fp32 (TF32), bf16 (bf16 and fp8) or fp16. Uses the fastest algorithm that
// cuBLAS proposes. Unimplemented if there is none.
absl::StatusOr<double> MeasureMatrixRate(MatrixType type);

}  // namespace attnlab::profiling

#endif  // PROFILING_MATRIX_RATE_H_
