// The end of a tile of attention on CUDA cores: writes O and LSE to global memory. Each row's
// softmax is in shared memory, and O is in registers.
#ifndef ATTENTION_DEVICE_CUDA_CORE_OUTPUTS_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_OUTPUTS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/cuda_core_threads.cuh"
#include "attention/device/online_softmax.h"
#include "attention/device/query_tile.h"
#include "attention/device/thread_index.cuh"

namespace attnlab::device {

// Where O of each row goes, in elements.
template <class Shape>
__device__ int64_t* OffsetsOfRows(float* shared) {
  return reinterpret_cast<int64_t*>(shared + Shape::kOffsets);
}

// Called by the whole block; each thread finishes one row. Writes LSE, replaces the row's sum by
// the factor for O, and finds where O goes. The caller puts barriers before and after it.
template <class Shape>
__device__ void FinishSoftmax(const Arguments& a, const QueryTile& tile, float* shared) {
#pragma unroll 1
  for (int row = ThreadIndex(); row < Shape::kRows; row += Shape::kThreads) {
    if (tile.begin + row >= tile.end) break;
    const OnlineSoftmax softmax = {shared[Shape::kNegMaxima + row], shared[Shape::kSums + row]};
    shared[Shape::kSums + row] = softmax.Inverse();
    OffsetsOfRows<Shape>(shared)[row] = tile.Offset(a.o, tile.begin + row);
    if (a.lse.data == nullptr) continue;
    static_cast<float*>(a.lse.data)[tile.Offset(a.lse, tile.begin + row)] = softmax.Lse();
  }
}

// Calls write(row of O, first dim, four elements) for all elements of O that the thread has, in
// rows that exist.
template <class Shape, typename T, int kDims, typename Write>
__device__ void ForEachFour(const Arguments& a, const QueryTile& tile, float* shared,
                            const float (&o)[Shape::kThreadRows][kDims], const Write& write) {
  const ThreadPlace<Shape> at;
  const int64_t rows = tile.end - tile.begin;
#pragma unroll
  for (int i = 0; i < Shape::kThreadRows; ++i) {
    const int row = at.row + Shape::RowStep(i);
    if (row >= rows) continue;
    T* const to = static_cast<T*>(a.o.data) + OffsetsOfRows<Shape>(shared)[row];
    const float inverse = shared[Shape::kSums + row];
#pragma unroll
    for (int c = 0; c < kDims; c += 4) {
      write(to, at.dim + c / 4 * Shape::kDimStep,
            make_float4(o[i][c] * inverse, o[i][c + 1] * inverse, o[i][c + 2] * inverse,
                        o[i][c + 3] * inverse));
    }
  }
}

// Called after FinishSoftmax().
template <class Shape, typename T, int kDims>
__device__ void WriteOutputs(const Arguments& a, const QueryTile& tile, float* shared,
                             const float (&o)[Shape::kThreadRows][kDims]) {
  // Storing single elements is rare, so it has a loop of its own.
  if (a.o.whole_chunks) {
    ForEachFour<Shape, T>(a, tile, shared, o, [&](T* to, int dim, float4 four) {
      if (dim < a.dv) StoreFour(to + dim, four);
    });
  } else {
    ForEachFour<Shape, T>(a, tile, shared, o, [&](T* to, int dim, float4 four) {
      if (dim < a.dv) to[dim] = FromFloat<T>(four.x);
      if (dim + 1 < a.dv) to[dim + 1] = FromFloat<T>(four.y);
      if (dim + 2 < a.dv) to[dim + 2] = FromFloat<T>(four.z);
      if (dim + 3 < a.dv) to[dim + 3] = FromFloat<T>(four.w);
    });
  }
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_OUTPUTS_CUH_
