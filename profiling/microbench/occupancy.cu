// Occupancy: the same chains of dependent reads with 1, 2, … blocks of 128 threads at a time on a
// multiprocessor. While one warp waits for memory, others can run. From some number on the memory
// is busy, and more warps gain nothing. Unused shared memory limits how many blocks fit.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "attention/cuda/launch.h"
#include "profiling/microbench/device_array.h"
#include "profiling/microbench/lesson.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 128;
constexpr int kSteps = 256;
constexpr int kRoundsOfMost = 4;              // rounds of blocks, at 16 per multiprocessor
constexpr int64_t kLinks = int64_t{1} << 22;  // 16 MiB: fits in L2
constexpr int kTogether = 32;                 // adjacent links that a warp reads

// Each thread follows a chain of links; each link is the index of the next.
__global__ void FollowLinks(const uint32_t* links, uint32_t* ends) {
  extern __shared__ char unused[];
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  uint32_t place = thread % kLinks;
  for (int i = 0; i < kSteps; ++i) place = links[place];
  ends[thread] = place;
}

// One random cycle through all lines of 32 links. The links of a line lead to adjacent links of the
// next, so a warp reads one line at a time.
std::vector<uint32_t> RandomCycle(int64_t count) {
  std::vector<uint32_t> lines(static_cast<size_t>(count / kTogether));
  std::vector<uint32_t> links(static_cast<size_t>(count));
  std::iota(lines.begin(), lines.end(), 0);
  std::shuffle(lines.begin(), lines.end(), std::mt19937(7));  // NOLINT: the same each time
  for (size_t i = 0; i < lines.size(); ++i) {
    const uint32_t next = lines[(i + 1) % lines.size()];
    for (uint32_t k = 0; k < kTogether; ++k) {
      links[lines[i] * kTogether + k] = next * kTogether + k;
    }
  }
  return links;
}

// An attribute of the current GPU.
int Attribute(cudaDeviceAttr attribute, cudaError_t* error) {
  int ordinal = 0, value = 0;
  if (*error == cudaSuccess) *error = cudaGetDevice(&ordinal);
  if (*error == cudaSuccess) *error = cudaDeviceGetAttribute(&value, attribute, ordinal);
  return value;
}

std::string CheckEnds(const std::vector<uint32_t>& links, const DeviceArray<uint32_t>& ends) {
  cudaError_t error = cudaSuccess;
  const auto found = ends.ToHost(&error);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (size_t i = 0; i < found.size(); i += 997) {
    uint32_t place = static_cast<uint32_t>(i % kLinks);
    for (int step = 0; step < kSteps; ++step) place = links[place];
    if (found[i] != place) return "a thread ended at a wrong place";
  }
  return "";
}

}  // namespace

cudaError_t MakeOccupancy(const Gpu& gpu, Lesson* lesson) {
  cudaError_t error = cudaSuccess;
  const auto host = std::make_shared<const std::vector<uint32_t>>(RandomCycle(kLinks));
  const auto links = DeviceArray<uint32_t>::Make(kLinks, &error);
  if (error == cudaSuccess) {
    error =
        cudaMemcpy(links.data(), host->data(), kLinks * sizeof(uint32_t), cudaMemcpyHostToDevice);
  }
  const int shared = Attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, &error);
  const int most_asked = Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, &error);
  const int most_blocks = std::min(16, gpu.most_threads / kThreads);
  const int64_t blocks = int64_t{kRoundsOfMost} * most_blocks * gpu.multiprocessors;
  const auto ends = DeviceArray<uint32_t>::Make(blocks * kThreads, &error);

  for (int at_a_time = 1; at_a_time <= most_blocks; at_a_time *= 2) {
    Variant variant;
    variant.name = Concat(at_a_time, at_a_time == 1 ? " block at a time" : " blocks at a time");
    // CUDA adds 1 KiB to each block's request. With this request, one more block does not fit.
    const int asked = std::clamp(shared / at_a_time - 1024, 0, most_asked) / 256 * 256;
    variant.launch = [=](cudaStream_t stream) {
      return device::Launch(FollowLinks, static_cast<unsigned>(blocks), kThreads,
                            static_cast<size_t>(asked), stream, links.data(), ends.data());
    };
    const double percent = 100.0 * at_a_time * kThreads / gpu.most_threads;
    variant.expected = {About("occupancy", percent, 0.1),
                        About("smsp__inst_executed_op_global_ld.sum",
                              static_cast<double>(blocks * kThreads / 32 * kSteps))};
    variant.check = [=] { return CheckEnds(*host, ends); };
    lesson->variants.push_back(std::move(variant));
  }
  return error;
}

}  // namespace attnlab::profiling
