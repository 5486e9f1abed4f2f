// Occupancy: the same chains of dependent reads by 1, 2, … blocks a multiprocessor at a time, each
// of 128 threads. What a warp waits for memory, others can use; from some number on the memory is
// what is busy, and more warps gain nothing. Shared memory that a block asks for and does not use
// limits how many there are.
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
constexpr int kRoundsOfMost = 4;              // blocks a multiprocessor and place, of 16 at a time
constexpr int64_t kLinks = int64_t{1} << 22;  // 16 MiB: in L2
constexpr int kTogether = 32;                 // that a warp reads side by side

// Each thread follows links, each of which says where the next one is.
__global__ void FollowLinks(const uint32_t* links, uint32_t* ends) {
  extern __shared__ char unused[];
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  uint32_t place = thread % kLinks;
  for (int i = 0; i < kSteps; ++i) place = links[place];
  ends[thread] = place;
}

// One cycle through all lines of 32 links, at random; the links of a line lead side by side to the
// next, so that a warp reads one line at a time.
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

// Of the current GPU.
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
    if (found[i] != place) return "a thread has lost its way";
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
    // Each block takes a KiB more than it asks for; what is asked for leaves no room for another.
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
