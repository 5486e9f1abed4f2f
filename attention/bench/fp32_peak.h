// How fast a GPU multiplies and adds fp32 numbers that are in registers: what kernels on CUDA cores
// are held against, measured in the same run, because clocks are not what a data sheet says.
#ifndef ATTENTION_BENCH_FP32_PEAK_H_
#define ATTENTION_BENCH_FP32_PEAK_H_

#include <vector>

#include "cuda_runtime_api.h"

namespace attnlab::bench {

// TFLOP/s of the current device in each of `repetitions` runs of about a millisecond; a
// multiply-add counts 2. The device has been warmed up. Waits until it is done.
cudaError_t MeasureFp32Peak(int repetitions, std::vector<double>* tflops);

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_FP32_PEAK_H_
