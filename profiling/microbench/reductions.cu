// Reductions: the 256 threads of a block add up 256 numbers. In a tree in shared memory each level
// is a read, a write and a barrier of all eight warps, of those with nothing to add as well; by
// shuffles a warp adds up its 32 in registers, and shared memory carries one number a warp.
// Shuffles go through the same pipe, and each is a wavefront there.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "attention/device/launch.h"
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

absl::Status CheckSums(const SharedArray<float>& numbers, const SharedArray<float>& sums) {
  const auto x = numbers->ToHost(), sum = sums->ToHost();
  if (!x.ok()) return x.status();
  if (!sum.ok()) return sum.status();
  for (size_t block = 0; block < kBlocks; block += 101) {
    double exact = 0;
    for (size_t i = 0; i < kThreads; ++i) exact += (*x)[block * kThreads + i];
    if (!(std::abs((*sum)[block] - exact) < 1e-4)) {
      return absl::InternalError(absl::StrCat("block ", block, ": ", (*sum)[block]));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Variant> VariantOf(const char* name, void (*kernel)(const float*, float*),
                                  const SharedArray<float>& numbers, double wavefronts) {
  const auto sums = DeviceArray<float>::Make(kBlocks);
  if (!sums.ok()) return sums.status();
  Variant variant;
  variant.name = name;
  variant.launch = [=](cudaStream_t stream) {
    return device::Launch(kernel, kBlocks, kThreads, 0, stream, numbers->data(), (*sums)->data());
  };
  variant.expected = {
      About("shared_wavefronts", wavefronts * kBlocks, 0.08),
      About("hbm_bytes_read", static_cast<double>(kBlocks) * kThreads * 4, 0.01, 1 << 20)};
  variant.check = [=] { return CheckSums(numbers, *sums); };
  return variant;
}

}  // namespace

absl::StatusOr<Lesson> MakeReductions(const Gpu&) {
  const auto numbers =
      DeviceArray<float>::MakeRandom(kBlocks * kThreads, NumberType::kFloat, /*seed=*/6);
  if (!numbers.ok()) return numbers.status();
  Lesson lesson;
  // A warp that begins takes two. In the tree all write, and read and write at eight levels: who
  // has nothing to add does it with no thread, which is a wavefront all the same. By shuffles all
  // do five and write a number each; one warp reads those and does three more.
  constexpr double kBegin = 2 * kWarps;
  const absl::StatusOr<Variant> variants[] = {
      VariantOf("tree in shared memory", SumInSharedMemory, *numbers,
                kBegin + kWarps + 8 * 2 * kWarps),
      VariantOf("shuffles", SumByShuffles, *numbers, kBegin + 5 * kWarps + kWarps + 1 + 3)};
  for (const absl::StatusOr<Variant>& variant : variants) {
    if (!variant.ok()) return variant.status();
    lesson.variants.push_back(*variant);
  }
  return lesson;
}

}  // namespace attnlab::profiling
