// Sharing of L2: every multiprocessor reads the same window of memory eight times. While the window
// fits in L2, memory is read once. An L2 of two partitions, as in GPUs from 8.0 on, keeps data that
// both sides read in both partitions. Only half of the cache is therefore available for data that
// all multiprocessors read. Data that only one multiprocessor reads has more room.
#include <cstring>

#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 1024;
constexpr int kPasses = 8;
constexpr int64_t kMiB = int64_t{1} << 20;

// Block b reads [b * `apart`, b * `apart` + `count`); with `apart` 0, all blocks read the same.
__global__ void __launch_bounds__(kThreads)
    ReadOverAndOver(const uint4* from, int64_t count, int64_t apart, uint32_t* sums) {
  uint32_t sum = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < count; i += kThreads) {
      const uint4 four = __ldcg(from + blockIdx.x * apart + i);
      sum += (four.x ^ four.y) + (four.z ^ four.w);
    }
  }
  atomicAdd(sums + blockIdx.x, sum);
}

__global__ void Clear(uint32_t* sums) { sums[blockIdx.x] = 0; }

std::string CheckSums(const DeviceArray<float>& from, int64_t count, int64_t apart,
                      const DeviceArray<uint32_t>& sums) {
  cudaError_t error = cudaSuccess;
  const auto numbers = from.ToHost(&error);
  const auto found = sums.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (const int64_t block : {int64_t{0}, sums.count() - 1}) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      uint4 four;
      std::memcpy(&four, &numbers[static_cast<size_t>(4 * (block * apart + i))], sizeof(four));
      sum += (four.x ^ four.y) + (four.z ^ four.w);
    }
    if (found[static_cast<size_t>(block)] != kPasses * sum) return "a sum is wrong";
  }
  return "";
}

}  // namespace

cudaError_t MakeL2Capacity(const Gpu& gpu, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const int64_t blocks = gpu.multiprocessors;
  const auto from =
      DeviceArray<float>::MakeRandom(2 * gpu.l2_bytes / 4, NumberType::kFloat, /*seed=*/9, &error);
  const auto sums = DeviceArray<uint32_t>::Make(blocks, &error);
  for (const bool shared : {true, false}) {
    for (const int eighths : {1, 2, 3, 4, 5, 6, 8, 12}) {
      const int64_t window = gpu.l2_bytes * eighths / 8 / 16;
      const int64_t count = shared ? window : window / blocks;
      const int64_t apart = shared ? 0 : count;
      Variant variant;
      variant.name = Concat(shared ? "all read " : "a share each of ",
                            count * 16 * (shared ? 1 : blocks) / kMiB, " MiB");
      variant.launch = [=](cudaStream_t stream) {
        const cudaError_t cleared =
            device::Launch(Clear, static_cast<unsigned>(blocks), 1, 0, stream, sums.data());
        if (cleared != cudaSuccess) return cleared;
        return device::Launch(ReadOverAndOver, static_cast<unsigned>(blocks), kThreads, 0, stream,
                              reinterpret_cast<const uint4*>(from.data()), count, apart,
                              sums.data());
      };
      const double bytes = 16.0 * static_cast<double>(count * (shared ? 1 : blocks));
      if (eighths <= 3) {
        variant.expected = {About("hbm_bytes_read", bytes, 0.05, kMiB)};
      } else if (eighths >= 8) {
        // The data needed next was used longest ago, so it has just been evicted.
        variant.expected = {About("hbm_bytes_read", kPasses * bytes, 0.05, kMiB)};
      } else {
        // In between, it depends on the partitions of L2 where this begins.
        variant.expected = {{"hbm_bytes_read", 0.99 * bytes, 1.05 * kPasses * bytes + kMiB}};
      }
      variant.check = [=] { return CheckSums(from, count, apart, sums); };
      lesson->variants.push_back(std::move(variant));
    }
  }
  return error;
}

}  // namespace attnlab::profiling
