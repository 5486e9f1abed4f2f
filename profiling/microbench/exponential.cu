// Exponentials: per cycle, a multiprocessor's special-function unit (MUFU) computes 2^x for 16
// threads, and its CUDA cores compute multiply-adds for 128. A polynomial takes a dozen
// instructions. It is therefore slower, but not by much, and both can work at the same time: a
// kernel whose MUFU is busy can compute part of its exponentials on CUDA cores.
#include <cmath>
#include <string>

#include "attention/cuda/launch.h"
#include "attention/device/special_functions.cuh"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kNumbers = int64_t{1} << 20;
constexpr int kEach = 256;  // exponentials per thread, of x, x - 1/32, …

// 2^x for x in (-126, 1], as 2^n 2^f, with n the nearest integer. Adding 1.5 * 2^23 leaves n in the
// last bits of a float. The polynomial is fitted for least relative error on [-1/2, 1/2], and is
// within 7.5e-8 of 2^f.
__device__ float Exp2ByPolynomial(float x) {
  const float shifted = x + 0x1.8p23f;
  const float f = x - (shifted - 0x1.8p23f);
  float p = 0.001327646482f;
  p = fmaf(p, f, 0.009675541277f);
  p = fmaf(p, f, 0.05550713296f);
  p = fmaf(p, f, 0.2402211973f);
  p = fmaf(p, f, 0.6931469671f);
  p = fmaf(p, f, 1.000000072f);
  return __int_as_float(__float_as_int(p) + (__float_as_int(shifted) << 23));
}

template <bool kPolynomial>
__global__ void SumOfExponentials(const float* numbers, float* sums) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float x = numbers[i];
  float sum = 0;
#pragma unroll 16
  for (int k = 0; k < kEach; ++k) {
    const float y = x - static_cast<float>(k) * 0x1p-5f;
    sum += kPolynomial ? Exp2ByPolynomial(y) : device::Exp2(y);
  }
  sums[i] = sum;
}

std::string CheckSums(const DeviceArray<float>& numbers, const DeviceArray<float>& sums) {
  cudaError_t error = cudaSuccess;
  const auto x = numbers.ToHost(&error), sum = sums.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (size_t i = 0; i < x.size(); i += 1013) {
    double exact = 0;
    for (int k = 0; k < kEach; ++k) exact += std::exp2(x[i] - k / 32.0);
    if (!(std::abs(sum[i] / exact - 1) < 1e-5)) {
      return Concat("number ", i, ": ", sum[i], ", not ", exact);
    }
  }
  return "";
}

template <bool kPolynomial>
Variant VariantOf(const char* name, const DeviceArray<float>& numbers, cudaError_t* error) {
  const auto sums = DeviceArray<float>::Make(kNumbers, error);
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(SumOfExponentials<kPolynomial>,
                          static_cast<unsigned>(kNumbers / kThreads), kThreads, 0, stream,
                          numbers.data(), sums.data());
  };
  constexpr double kExponentials = static_cast<double>(kNumbers) * kEach / 32;  // of warps
  const std::string unit = "smsp__inst_executed_pipe_xu.sum";
  if (kPolynomial) {
    variant.expected = {{unit, 0, 0.02 * kExponentials},
                        {"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
                         5 * 32 * kExponentials, 6.05 * 32 * kExponentials}};
  } else {
    variant.expected = {About(unit, kExponentials, 0.02)};
  }
  variant.check = [=] { return CheckSums(numbers, sums); };
  return variant;
}

}  // namespace

cudaError_t MakeExponential(const Gpu&, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto numbers =
      DeviceArray<float>::MakeRandom(kNumbers, NumberType::kFloat, /*seed=*/4, &error);
  lesson->variants = {VariantOf<false>("special-function unit", numbers, &error),
                      VariantOf<true>("polynomial", numbers, &error)};
  return error;
}

}  // namespace attnlab::profiling
