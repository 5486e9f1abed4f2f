// Where a thread stands in a tile of attention on CUDA cores, and reductions over the threads of
// one row.
#ifndef ATTENTION_DEVICE_CUDA_CORE_THREADS_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_THREADS_CUH_

#include "attention/device/reduce.cuh"
#include "attention/device/thread_index.cuh"

namespace attnlab::device {

// Where a thread stands (cuda_core_shape.h). It is computed again wherever it is needed; otherwise
// what follows from it would stay in registers through both products.
template <class Shape>
struct ThreadPlace {
  __device__ ThreadPlace() {
    const int thread = ThreadIndex(), lane = thread % kWarpThreads, warp = thread / kWarpThreads;
    lane_column = Shape::LaneColumn(lane);
    warp_column = warp % Shape::kColumnWarps;
    warp_row = warp / Shape::kColumnWarps;
    row = Shape::FirstRow(warp_row, lane);
    own_row = row + Shape::OwnRowStep(warp_column);
    key = Shape::FirstKey(warp_column, lane);
    dim = Shape::FirstDim(warp_column, lane);
  }
  int lane_column, warp_column, warp_row;
  // The thread's first row, first row whose scores it adds up, first key and first dim.
  int row, own_row, key, dim;
};

// Reduces one value per lane over the lanes of the same row.
template <typename Op>
__device__ float ReduceRow(float value) {
#pragma unroll
  for (int offset = 2; offset <= 8; offset *= 2) {
    value = Op::Of(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  }
  return value;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_THREADS_CUH_
