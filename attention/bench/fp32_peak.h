// The fp32 multiply-add rate of a GPU, with all numbers in registers. Kernels on CUDA cores are
// compared with it. It is measured in the same run, because clocks differ from the data sheet's.
#ifndef ATTENTION_BENCH_FP32_PEAK_H_
#define ATTENTION_BENCH_FP32_PEAK_H_

#include <vector>

#include "cuda_runtime_api.h"

namespace attnlab::bench {

// TFLOP/s of the current device in each of `repetitions` runs of about a millisecond, after a
// warm-up; a multiply-add counts as 2. Waits for the GPU.
cudaError_t MeasureFp32Peak(int repetitions, std::vector<double>* tflops);

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_FP32_PEAK_H_
