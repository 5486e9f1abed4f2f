// Unrolling: a loop over four chains of multiply-adds. Rolled, each iteration also counts, compares
// and branches. Unrolled 16 times, this is paid once per 64 multiply-adds; their number is
// unchanged.
#include <cmath>

#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kNumbers = int64_t{1} << 18;
constexpr int kTurns = 4096;
constexpr int kChains = 4;
constexpr float kFactor = -0.75f, kAddend = 0.5f;

template <int kUnroll>
__global__ void MultiplyAdds(const float* from, float* to, int turns) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float x = from[i];
  float chain[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) chain[c] = x + static_cast<float>(c);
#pragma unroll kUnroll
  for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) chain[c] = fmaf(chain[c], kFactor, kAddend);
  }
  to[i] = (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

std::string CheckChains(const DeviceArray<float>& from, const DeviceArray<float>& to) {
  cudaError_t error = cudaSuccess;
  const auto x = from.ToHost(&error), y = to.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (size_t i = 0; i < x.size(); i += 4099) {
    float chain[kChains];
    for (int c = 0; c < kChains; ++c) {
      chain[c] = x[i] + static_cast<float>(c);
      for (int turn = 0; turn < kTurns; ++turn) chain[c] = std::fma(chain[c], kFactor, kAddend);
    }
    if (y[i] != (chain[0] + chain[1]) + (chain[2] + chain[3])) {
      return "a chain has a wrong result";
    }
  }
  return "";
}

template <int kUnroll>
Variant VariantOf(const char* name, const DeviceArray<float>& from, double least_instructions,
                  double most_instructions, cudaError_t* error) {
  const auto to = DeviceArray<float>::Make(kNumbers, error);
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(MultiplyAdds<kUnroll>, static_cast<unsigned>(kNumbers / kThreads),
                          kThreads, 0, stream, from.data(), to.data(), kTurns);
  };
  constexpr double kMultiplyAdds = static_cast<double>(kNumbers) * kTurns * kChains;
  variant.expected = {About("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", kMultiplyAdds),
                      // Instructions of warps, relative to the multiply-adds.
                      {"smsp__inst_executed.sum", least_instructions * kMultiplyAdds / 32,
                       most_instructions * kMultiplyAdds / 32}};
  variant.check = [=] { return CheckChains(from, to); };
  return variant;
}

}  // namespace

cudaError_t MakeUnrolling(const Gpu&, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto from =
      DeviceArray<float>::MakeRandom(kNumbers, NumberType::kFloat, /*seed=*/5, &error);
  // An iteration has three or four instructions besides its four multiply-adds; unrolled, a 16th of
  // that.
  lesson->variants = {VariantOf<1>("rolled", from, 1.5, 2.3, &error),
                      VariantOf<16>("unrolled 16 times", from, 1, 1.1, &error)};
  return error;
}

}  // namespace attnlab::profiling
