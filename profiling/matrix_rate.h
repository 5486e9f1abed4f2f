// How fast cuBLAS multiplies large matrices on tensor cores: what a library that is made for it
// gets out of a GPU.
#ifndef PROFILING_MATRIX_RATE_H_
#define PROFILING_MATRIX_RATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::profiling {

enum class MatrixType { kBFloat16, kHalf, kTf32, kFp8 };

// FLOP/s of the current device, the median of some 20 products of 8192 x 8192 random numbers that
// are summed in fp32 and written as fp32 (TF32), bf16 (bf16, fp8) or fp16. Of the algorithms that
// cuBLAS proposes the fastest. Unimplemented where it proposes none.
absl::StatusOr<double> MeasureMatrixRate(MatrixType type);

}  // namespace attnlab::profiling

#endif  // PROFILING_MATRIX_RATE_H_
