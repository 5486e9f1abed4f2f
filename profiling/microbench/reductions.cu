// Reductions: the 256 threads of a block add up 256 numbers. With a tree in shared memory, each
// level is a read, a write and a barrier for all eight warps, even those with nothing to add. With
// shuffles a warp adds up its 32 numbers in registers, and shared memory holds one number per warp.
// Shuffles use the same pipe, and each counts as a wavefront there.
#include <cmath>

#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kBlocks = 1 << 17;

__global__ void SumInSharedMemory(const float* numbers, float* sums) {
  __shared__ float partial[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  float sum = numbers[int64_t{blockIdx.x} * kThreads + thread];
  partial[thread] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) partial[thread] = sum += partial[thread + half];
  }
  if (thread == 0) sums[blockIdx.x] = sum;
}

__global__ void SumByShuffles(const float* numbers, float* sums) {
  __shared__ float partial[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  float sum = numbers[int64_t{blockIdx.x} * kThreads + thread];
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lane);
  if (thread % 32 == 0) partial[thread / 32] = sum;
  __syncthreads();
  if (thread >= kWarps) return;
  sum = partial[thread];
  for (int lane = kWarps / 2; lane > 0; lane /= 2) {
    sum += __shfl_xor_sync((1u << kWarps) - 1, sum, lane);
  }
  if (thread == 0) sums[blockIdx.x] = sum;
}

std::string CheckSums(const DeviceArray<float>& numbers, const DeviceArray<float>& sums) {
  cudaError_t error = cudaSuccess;
  const auto x = numbers.ToHost(&error), sum = sums.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (size_t block = 0; block < kBlocks; block += 101) {
    double exact = 0;
    for (size_t i = 0; i < kThreads; ++i) exact += x[block * kThreads + i];
    if (!(std::abs(sum[block] - exact) < 1e-4)) return Concat("block ", block, ": ", sum[block]);
  }
  return "";
}

Variant VariantOf(const char* name, void (*kernel)(const float*, float*),
                  const DeviceArray<float>& numbers, double wavefronts, cudaError_t* error) {
  const auto sums = DeviceArray<float>::Make(kBlocks, error);
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(kernel, kBlocks, kThreads, 0, stream, numbers.data(), sums.data());
  };
  variant.expected = {
      About("shared_wavefronts", wavefronts * kBlocks, 0.08),
      About("hbm_bytes_read", static_cast<double>(kBlocks) * kThreads * 4, 0.01, 1 << 20)};
  variant.check = [=] { return CheckSums(numbers, sums); };
  return variant;
}

}  // namespace

cudaError_t MakeReductions(const Gpu&, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto numbers =
      DeviceArray<float>::MakeRandom(kBlocks * kThreads, NumberType::kFloat, /*seed=*/6, &error);
  // A warp that starts takes two wavefronts. In the tree, every warp writes once, then reads and
  // writes at eight levels: with no active thread, the instruction still is a wavefront. With
  // shuffles, every warp does five and writes one number; one warp reads those and does three more.
  constexpr double kBegin = 2 * kWarps;
  lesson->variants = {
      VariantOf("tree in shared memory", SumInSharedMemory, numbers,
                kBegin + kWarps + 8 * 2 * kWarps, &error),
      VariantOf("shuffles", SumByShuffles, numbers, kBegin + 5 * kWarps + kWarps + 1 + 3, &error)};
  return error;
}

}  // namespace attnlab::profiling
