// y = a x + y on the device: the smallest library that shows a kernel, its launch and its errors
// crossing from a .cu file into C++.
#pragma once

#include <cstdint>

namespace attnlab::cuda_rules_test {

// Returns 0, or the cudaError_t of the first call that failed. x and y are host arrays of n floats.
int Saxpy(int64_t n, float a, const float* x, float* y);

// The __CUDA_ARCH__ of the device code that runs on the current GPU, or minus a cudaError_t.
int RunningArch();

}  // namespace attnlab::cuda_rules_test
