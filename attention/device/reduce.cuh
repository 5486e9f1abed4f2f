// Reductions over the threads of a warp and of a block.
#ifndef ATTENTION_DEVICE_REDUCE_CUH_
#define ATTENTION_DEVICE_REDUCE_CUH_

#include <cuda_runtime.h>

namespace attnlab::device {

constexpr int kWarpThreads = 32;
constexpr int kMaxBlockWarps = 1024 / kWarpThreads;

struct Max {
  static constexpr float kNone = -INFINITY;
  // Takes the other of a number and NaN.
  __device__ static float Of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  static constexpr float kNone = 0;
  __device__ static float Of(float a, float b) { return a + b; }
};

// Of one value a thread, to all threads of the warp, all of which call it.
template <typename Op>
__device__ float ReduceWarp(float value) {
#pragma unroll
  for (int offset = kWarpThreads / 2; offset > 0; offset /= 2) {
    value = Op::Of(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  }
  return value;
}

// To all threads of the block, all of which call it; the block is of whole warps. `scratch`:
// kMaxBlockWarps floats of shared memory, of this and no other use between two calls.
template <typename Op>
__device__ float ReduceBlock(float value, float* scratch) {
  value = ReduceWarp<Op>(value);
  if (blockDim.x <= kWarpThreads) return value;
  const unsigned warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
  __syncthreads();  // the last reduction's results have been read
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  return ReduceWarp<Op>(lane < blockDim.x / kWarpThreads ? scratch[lane] : Op::kNone);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_REDUCE_CUH_
