// Coalescing: the 32 threads of a warp read 32 floats. If these are adjacent, they lie in 4 sectors
// of 32 bytes, the unit of L2 and memory. If they are eight or more floats apart, they lie in 32
// sectors, and one eighth of each is used. The number of loads is the same.
#include <algorithm>
#include <cmath>

#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int kLog2Loads = 24;  // 64 MiB of adjacent floats, or 512 MiB in sectors of their own
constexpr int64_t kLoads = int64_t{1} << kLog2Loads;
constexpr int kMostApart = 32;

// Each thread reads one float; each warp writes the sum of its 32.
__global__ void SumStrided(const float* from, int64_t apart, float* sums) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float sum = from[i * apart];
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lane);
  if (threadIdx.x % 32 == 0) sums[i / 32] = sum;
}

std::string CheckSums(const DeviceArray<float>& from, int64_t apart,
                      const DeviceArray<float>& sums) {
  cudaError_t error = cudaSuccess;
  // Checks a few warps, the last one included.
  for (const int64_t warp : {int64_t{0}, int64_t{1}, kLoads / 64, kLoads / 32 - 1}) {
    const auto numbers = from.ToHost(warp * 32 * apart, (warp * 32 + 31) * apart + 1, &error);
    const auto sum = sums.ToHost(warp, warp + 1, &error);
    if (error != cudaSuccess) return cudaGetErrorString(error);
    double exact = 0;
    for (int64_t i = 0; i < 32; ++i) exact += numbers[static_cast<size_t>(i * apart)];
    if (!(std::abs(sum[0] - exact) < 1e-4)) {
      return Concat("warp ", warp, ": ", sum[0], ", not ", exact);
    }
  }
  return "";
}

}  // namespace

cudaError_t MakeCoalescing(const Gpu&, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto from =
      DeviceArray<float>::MakeRandom(kLoads * kMostApart, NumberType::kFloat, /*seed=*/1, &error);
  const auto sums = DeviceArray<float>::Make(kLoads / 32, &error);
  for (const int apart : {1, 2, 4, 8, 32}) {
    Variant variant;
    variant.name = Concat(apart, apart == 1 ? " float apart" : " floats apart");
    variant.launch = [=](cudaStream_t stream) {
      return device::Launch(SumStrided, kLoads / kThreads, kThreads, 0, stream, from.data(), apart,
                            sums.data());
    };
    const double sectors = static_cast<double>(kLoads) / 32 * std::min(32, 4 * apart);
    variant.expected = {
        About("l2_sectors_read", sectors),
        About("smsp__inst_executed_op_global_ld.sum", static_cast<double>(kLoads) / 32),
    };
    // Memory transfers 64 bytes, two sectors; a sector that is farther apart brings its neighbour
    // along.
    const double bytes = 32 * sectors;
    variant.expected.push_back({"hbm_bytes_read", 0.99 * bytes, 2.05 * bytes});
    variant.check = [=] { return CheckSums(from, apart, sums); };
    lesson->variants.push_back(std::move(variant));
  }
  return error;
}

}  // namespace attnlab::profiling
