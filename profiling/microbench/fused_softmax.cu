// Softmax of the rows of a matrix. As three kernels, it reads the matrix three times and writes it
// twice: maximum, exponentials and their sum, quotients. Fused, a row stays in the registers of a
// block, and is read once and written once. Attention kernels do the same with S.
#include <algorithm>
#include <cmath>

#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 8192;
constexpr int kEach = kColumns / kThreads;  // elements of a row per thread
constexpr int kRows = 8192;
constexpr int64_t kNumbers = int64_t{kRows} * kColumns;

struct Sum {
  __device__ static float Of(float a, float b) { return a + b; }
};
struct Maximum {
  __device__ static float Of(float a, float b) { return fmaxf(a, b); }
};

// Reduces over the block; every thread gets the result.
template <typename Operation>
__device__ float OfBlock(float x) {
  __shared__ float of_warps[kWarps];
  for (int lane = 16; lane > 0; lane /= 2) {
    x = Operation::Of(x, __shfl_xor_sync(0xffffffff, x, lane));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warps[0];
  for (int w = 1; w < kWarps; ++w) x = Operation::Of(x, of_warps[w]);
  __syncthreads();  // before the next call writes of_warps
  return x;
}

__device__ int64_t RowOfBlock() { return int64_t{blockIdx.x} * kColumns; }

__global__ void MaximaOfRows(const float* x, float* maxima) {
  float most = -INFINITY;
  for (int i = threadIdx.x; i < kColumns; i += kThreads) most = fmaxf(most, x[RowOfBlock() + i]);
  most = OfBlock<Maximum>(most);
  if (threadIdx.x == 0) maxima[blockIdx.x] = most;
}

__global__ void ExponentialsAndSums(const float* x, const float* maxima, float* y, float* sums) {
  const float most = maxima[blockIdx.x];
  float sum = 0;
  for (int i = threadIdx.x; i < kColumns; i += kThreads) {
    const float e = __expf(x[RowOfBlock() + i] - most);
    y[RowOfBlock() + i] = e;
    sum += e;
  }
  sum = OfBlock<Sum>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void Quotients(float* y, const float* sums) {
  const float factor = 1 / sums[blockIdx.x];
  for (int i = threadIdx.x; i < kColumns; i += kThreads) y[RowOfBlock() + i] *= factor;
}

__global__ void FusedSoftmax(const float* x, float* y) {
  float row[kEach], most = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    row[i] = x[RowOfBlock() + i * kThreads + threadIdx.x];
    most = fmaxf(most, row[i]);
  }
  most = OfBlock<Maximum>(most);
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += row[i] = __expf(row[i] - most);
  const float factor = 1 / OfBlock<Sum>(sum);
#pragma unroll
  for (int i = 0; i < kEach; ++i) y[RowOfBlock() + i * kThreads + threadIdx.x] = row[i] * factor;
}

std::string CheckRows(const DeviceArray<float>& x, const DeviceArray<float>& y) {
  cudaError_t error = cudaSuccess;
  for (const int64_t row : {0, 1, kRows / 2, kRows - 1}) {
    const auto in = x.ToHost(row * kColumns, (row + 1) * kColumns, &error);
    const auto out = y.ToHost(row * kColumns, (row + 1) * kColumns, &error);
    if (error != cudaSuccess) return cudaGetErrorString(error);
    double sum = 0;
    for (const float v : in) sum += std::exp(double{v});
    for (size_t i = 0; i < kColumns; ++i) {
      const double exact = std::exp(double{in[i]}) / sum;
      if (!(std::abs(out[i] / exact - 1) < 1e-4)) {
        return Concat("row ", row, ", column ", i, ": ", out[i]);
      }
    }
  }
  return "";
}

}  // namespace

cudaError_t MakeFusedSoftmax(const Gpu& gpu, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto x = DeviceArray<float>::MakeRandom(kNumbers, NumberType::kFloat, /*seed=*/8, &error);
  const auto in_steps = DeviceArray<float>::Make(kNumbers, &error);
  const auto fused = DeviceArray<float>::Make(kNumbers, &error);
  const auto of_rows = DeviceArray<float>::Make(2 * kRows, &error);

  constexpr double kBytes = 4.0 * kNumbers;
  const auto l2 = static_cast<double>(gpu.l2_bytes);
  Variant steps;
  steps.name = "three kernels";
  steps.launch = [=](cudaStream_t stream) {
    float* const maxima = of_rows.data();
    float* const sums = maxima + kRows;
    cudaError_t launched =
        device::Launch(MaximaOfRows, kRows, kThreads, 0, stream, x.data(), maxima);
    if (launched != cudaSuccess) return launched;
    launched = device::Launch(ExponentialsAndSums, kRows, kThreads, 0, stream, x.data(), maxima,
                              in_steps.data(), sums);
    if (launched != cudaSuccess) return launched;
    return device::Launch(Quotients, kRows, kThreads, 0, stream, in_steps.data(), sums);
  };
  // Each kernel may find in L2 the end of what the kernel before it read or wrote.
  steps.expected = {{"hbm_bytes_read", 3 * kBytes - 2 * l2, 3.03 * kBytes},
                    {"hbm_bytes_written", 2 * kBytes - 2 * l2, 2.02 * kBytes}};
  steps.check = [=] { return CheckRows(x, in_steps); };
  lesson->variants.push_back(std::move(steps));

  Variant one;
  one.name = "fused";
  one.launch = [=](cudaStream_t stream) {
    return device::Launch(FusedSoftmax, kRows, kThreads, 0, stream, x.data(), fused.data());
  };
  one.expected = {About("hbm_bytes_read", kBytes, 0.01, 1 << 20),
                  About("hbm_bytes_written", kBytes, 0.01, l2)};
  one.check = [=] { return CheckRows(x, fused); };
  lesson->variants.push_back(std::move(one));
  return error;
}

}  // namespace attnlab::profiling
