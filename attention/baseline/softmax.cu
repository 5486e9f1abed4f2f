#include <algorithm>
#include <cstdint>

#include "attention/baseline/softmax.h"
#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "attention/device/reduce.cuh"

namespace attnlab::baseline {
namespace {

constexpr int kVector = 4;  // floats in 16 bytes

// Query `row` of `sequence` and `head`, and the keys that it sees.
struct ScoreRow {
  int64_t sequence, head, row;
  device::Span q;
  KvRange visible;
};

__device__ ScoreRow RowAt(const ScoreRows& rows, int64_t index) {
  ScoreRow r;
  const int64_t pair = rows.first + index / rows.sq;
  r.row = index % rows.sq;
  r.sequence = pair / rows.hq;
  r.head = pair % rows.hq;
  r.q = rows.q[r.sequence];
  r.visible = {0, 0};
  if (r.row < r.q.length) {
    r.visible = VisibleKv(rows.mask, r.row, r.q.length, rows.kv[r.sequence].length);
  }
  return r;
}

__device__ float Transformed(float score, const ScoreTransform& t) {
  score *= t.scale;
  return t.softcap == 0 ? score : t.softcap * tanhf(score / t.softcap);
}

__device__ float TransformedAt(float score, int64_t key, KvRange visible,
                               const ScoreTransform& transform) {
  const bool seen = key >= visible.begin && key < visible.end;
  return seen ? Transformed(score, transform) : -INFINITY;
}

// Loads four floats at a column that is a multiple of 4; those beyond the row are minus infinity.
__device__ float4 LoadScores(const float* row, int64_t column, int64_t columns) {
  if (column + kVector <= columns) return *reinterpret_cast<const float4*>(row + column);
  float4 v = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
  if (column < columns) v.x = row[column];
  if (column + 1 < columns) v.y = row[column + 1];
  if (column + 2 < columns) v.z = row[column + 2];
  return v;
}

template <typename T>
__device__ void Store(T* row, int64_t column, int64_t columns, float4 v) {
  if (column + kVector <= columns) {
    device::StoreFour(row + column, v);
    return;
  }
  if (column < columns) row[column] = device::FromFloat<T>(v.x);
  if (column + 1 < columns) row[column + 1] = device::FromFloat<T>(v.y);
  if (column + 2 < columns) row[column + 2] = device::FromFloat<T>(v.z);
}

__device__ float4 Transform(float4 v, int64_t column, KvRange visible, const ScoreTransform& t) {
  v.x = TransformedAt(v.x, column, visible, t);
  v.y = TransformedAt(v.y, column + 1, visible, t);
  v.z = TransformedAt(v.z, column + 2, visible, t);
  v.w = TransformedAt(v.w, column + 3, visible, t);
  return v;
}

// A block's tiles have kUnroll vectors per thread, all of one row.
constexpr int kUnroll = 4;

__global__ void ScaleAndMaskKernel(const ScoreRows rows, const ScoreTransform transform,
                                   float* scores, int64_t stride, int64_t tiles) {
  const int64_t tile_columns = int64_t{kUnroll} * kVector * blockDim.x;
  for (int64_t tile = blockIdx.x; tile < rows.count * rows.sq * tiles; tile += gridDim.x) {
    const int64_t index = tile / tiles;
    const ScoreRow r = RowAt(rows, index);
    float* const row = scores + index * stride;
    const int64_t begin = tile % tiles * tile_columns + kVector * threadIdx.x;
    float4 values[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      values[i] = LoadScores(row, begin + int64_t{i} * kVector * blockDim.x, rows.skv);
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int64_t column = begin + int64_t{i} * kVector * blockDim.x;
      Store(row, column, rows.skv, Transform(values[i], column, r.visible, transform));
    }
  }
}

// What is subtracted before exponentials: the maximum, or 0 for a row without keys, whose maximum
// is minus infinity.
__device__ float Base(float max) { return max == -INFINITY ? 0 : max; }

__device__ float4 Exp(float4 v, float base) {
  return make_float4(expf(v.x - base), expf(v.y - base), expf(v.z - base), expf(v.w - base));
}
__device__ float MaxOf(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }
__device__ float SumOf(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ float4 Times(float4 v, float f) {
  return make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}

// 1 / sum; 0 for a row that sees no key, so that its probabilities are 0.
__device__ float Inverse(float sum) { return sum == 0 ? 0 : 1 / sum; }

__device__ void WriteLse(const SoftmaxTask& task, const ScoreRow& r, float max, float sum) {
  if (task.lse == nullptr || threadIdx.x != 0 || r.row >= r.q.length) return;
  task.lse[r.q.batch * task.lse_batch_stride + (r.q.begin + r.row) * task.lse_row_stride +
           r.head * task.lse_head_stride] = sum == 0 ? -INFINITY : max + logf(sum);
}

// kVectors: vectors of a row that each thread keeps in registers.
template <typename T, int kVectors>
__global__ void SoftmaxKernel(const SoftmaxTask task) {
  __shared__ float scratch[device::kMaxBlockWarps];
  const ScoreRows& rows = task.rows;
  for (int64_t index = blockIdx.x; index < rows.count * rows.sq; index += gridDim.x) {
    const float* const scores = task.scores + index * task.score_stride;
    T* const probabilities = static_cast<T*>(task.probabilities) + index * task.probability_stride;
    const ScoreRow r = RowAt(rows, index);
    float4 values[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      values[i] = LoadScores(scores, kVector * (i * blockDim.x + threadIdx.x), rows.skv);
    }
    float max = -INFINITY;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (task.fused) {
        const int64_t column = kVector * (i * blockDim.x + threadIdx.x);
        values[i] = Transform(values[i], column, r.visible, task.transform);
      }
      max = fmaxf(max, MaxOf(values[i]));
    }
    max = device::ReduceBlock<device::Max>(max, scratch);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      values[i] = Exp(values[i], Base(max));
      sum += SumOf(values[i]);
    }
    sum = device::ReduceBlock<device::Sum>(sum, scratch);
    const float inverse = Inverse(sum);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t column = kVector * (i * blockDim.x + threadIdx.x);
      Store(probabilities, column, rows.skv, Times(values[i], inverse));
    }
    WriteLse(task, r, max, sum);
  }
}

// Rows that do not fit the registers take two passes. The first finds the maximum and the sum, and
// rescales the sum when the maximum grows. The second computes the probabilities.
template <typename T>
__global__ void LongSoftmaxKernel(const SoftmaxTask task) {
  __shared__ float scratch[device::kMaxBlockWarps];
  const ScoreRows& rows = task.rows;
  const int64_t step = int64_t{kVector} * blockDim.x;
  for (int64_t index = blockIdx.x; index < rows.count * rows.sq; index += gridDim.x) {
    const float* const scores = task.scores + index * task.score_stride;
    T* const probabilities = static_cast<T*>(task.probabilities) + index * task.probability_stride;
    const ScoreRow r = RowAt(rows, index);
    const auto load = [&](int64_t column) {
      const float4 v = LoadScores(scores, column, rows.skv);
      return task.fused ? Transform(v, column, r.visible, task.transform) : v;
    };
    float max = -INFINITY, sum = 0;
    for (int64_t column = kVector * threadIdx.x; column < rows.skv; column += step) {
      const float4 v = load(column);
      const float larger = fmaxf(max, MaxOf(v));
      // Before the first key there is nothing to rescale, and 0 times infinity would be NaN.
      const float kept = sum == 0 ? 0 : sum * expf(Base(max) - Base(larger));
      sum = kept + SumOf(Exp(v, Base(larger)));
      max = larger;
    }
    const float block_max = device::ReduceBlock<device::Max>(max, scratch);
    sum = sum == 0 ? 0 : sum * expf(Base(max) - Base(block_max));
    sum = device::ReduceBlock<device::Sum>(sum, scratch);
    const float inverse = Inverse(sum);
    for (int64_t column = kVector * threadIdx.x; column < rows.skv; column += step) {
      Store(probabilities, column, rows.skv, Times(Exp(load(column), Base(block_max)), inverse));
    }
    WriteLse(task, r, block_max, sum);
  }
}

template <typename T>
cudaError_t LaunchSoftmax(const SoftmaxTask& task, int block, cudaStream_t stream) {
  const int64_t vectors = (task.rows.skv + kVector - 1) / kVector;
  const int64_t a_thread = (vectors + block - 1) / block;
  void (*kernel)(SoftmaxTask) = LongSoftmaxKernel<T>;
  if (a_thread <= 1) {
    kernel = SoftmaxKernel<T, 1>;
  } else if (a_thread <= 2) {
    kernel = SoftmaxKernel<T, 2>;
  } else if (a_thread <= 4) {
    kernel = SoftmaxKernel<T, 4>;
  } else if (a_thread <= kRowInRegisters / kVector) {
    kernel = SoftmaxKernel<T, kRowInRegisters / kVector>;
  }
  const int64_t grid = std::min<int64_t>(task.rows.count * task.rows.sq, INT32_MAX);
  return device::Launch(kernel, dim3(static_cast<unsigned>(grid)), dim3(block), 0, stream, task);
}

}  // namespace

cudaError_t ScaleAndMask(const ScoreRows& rows, const ScoreTransform& transform, float* scores,
                         int64_t stride, int block, cudaStream_t stream) {
  if (rows.count == 0 || rows.sq == 0 || rows.skv == 0) return cudaSuccess;
  const int64_t tile_columns = int64_t{kUnroll} * kVector * block;
  const int64_t tiles = (rows.skv + tile_columns - 1) / tile_columns;
  const int64_t grid = std::min<int64_t>(rows.count * rows.sq * tiles, INT32_MAX);
  return device::Launch(ScaleAndMaskKernel, dim3(static_cast<unsigned>(grid)), dim3(block), 0,
                        stream, rows, transform, scores, stride, tiles);
}

cudaError_t Softmax(const SoftmaxTask& task, int block, cudaStream_t stream) {
  if (task.rows.count == 0 || task.rows.sq == 0) return cudaSuccess;
  switch (task.element) {
    case device::Element::kFloat32:
      return LaunchSoftmax<float>(task, block, stream);
    case device::Element::kFloat16:
      return LaunchSoftmax<__half>(task, block, stream);
    case device::Element::kBFloat16:
      return LaunchSoftmax<__nv_bfloat16>(task, block, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::baseline
