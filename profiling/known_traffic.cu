#include <algorithm>

#include "attention/cuda/launch.h"
#include "profiling/known_traffic.h"

namespace attnlab::profiling {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 16;

__global__ void Copy(const uint4* from, uint4* to, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

__global__ void Fill(uint4* to, int64_t count, uint32_t pattern) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = {pattern, pattern, pattern, pattern};
  }
}

// `result` is always null, but the compiler does not know that, so it keeps the reads.
__global__ void Read(const uint4* from, int64_t count, uint32_t* result) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  uint32_t bits = 0;
  // Several reads in flight.
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 four = from[i];
    bits |= four.x | four.y | four.z | four.w;
  }
  if (result != nullptr) *result = bits;
}

dim3 BlocksFor(int64_t count) {
  const int64_t blocks = std::min<int64_t>((count + kThreads - 1) / kThreads, kMostBlocks);
  return dim3(static_cast<unsigned>(std::max<int64_t>(1, blocks)));
}

}  // namespace

cudaError_t CopyBytes(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  const int64_t count = bytes / 16;
  return device::Launch(Copy, BlocksFor(count), kThreads, 0, stream,
                        static_cast<const uint4*>(from), static_cast<uint4*>(to), count);
}

cudaError_t FillBytes(void* to, int64_t bytes, uint32_t pattern, cudaStream_t stream) {
  const int64_t count = bytes / 16;
  return device::Launch(Fill, BlocksFor(count), kThreads, 0, stream, static_cast<uint4*>(to), count,
                        pattern);
}

cudaError_t ReadBytes(const void* from, int64_t bytes, cudaStream_t stream) {
  const int64_t count = bytes / 16;
  return device::Launch(Read, BlocksFor(count), kThreads, 0, stream,
                        static_cast<const uint4*>(from), count, nullptr);
}

}  // namespace attnlab::profiling
