// Reductions over the threads of a warp and of a block.
#ifndef ATTENTION_DEVICE_REDUCE_CUH_
#define ATTENTION_DEVICE_REDUCE_CUH_

#include <cuda_runtime.h>

namespace attnlab::device {

constexpr int kWarpThreads = 32;
constexpr int kMaxBlockWarps = 1024 / kWarpThreads;

struct Max {
  static constexpr float kNone = -INFINITY;
  // fmaxf() ignores a NaN if the other argument is a number.
  __device__ static float Of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  static constexpr float kNone = 0;
  __device__ static float Of(float a, float b) { return a + b; }
};

// Reduces one value per thread over a warp. All 32 threads call it, and all get the result.
template <typename Op>
__device__ float ReduceWarp(float value) {
#pragma unroll
  for (int offset = kWarpThreads / 2; offset > 0; offset /= 2) {
    value = Op::Of(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  }
  return value;
}

// Reduces one value per thread over a block of whole warps. All threads call it, and all get the
// result. `scratch` is kMaxBlockWarps floats of shared memory, not used for anything else between
// two calls.
template <typename Op>
__device__ float ReduceBlock(float value, float* scratch) {
  value = ReduceWarp<Op>(value);
  if (blockDim.x <= kWarpThreads) return value;
  const unsigned warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
  __syncthreads();  // the previous call's results have been read
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  return ReduceWarp<Op>(lane < blockDim.x / kWarpThreads ? scratch[lane] : Op::kNone);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_REDUCE_CUH_
