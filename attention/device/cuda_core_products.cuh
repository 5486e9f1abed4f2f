// The two products of a tile of attention on CUDA cores, of factors in shared memory and sums in
// registers (cuda_core_shape.h says which thread has which).
#ifndef ATTENTION_DEVICE_CUDA_CORE_PRODUCTS_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_PRODUCTS_CUH_

#include <cstdint>

namespace attnlab::device {

__device__ inline float4 LoadFour(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

// s[i][j] = Q Kᵀ over `dims` dims, rounded up to a multiple of 4. `q`: the thread's first row; `k`:
// the first keys of each kThreadKeys of s.
template <class Shape, int kSets>
__device__ void Scores(const float* q, const float* const (&k)[kSets], int dims,
                       float (&s)[Shape::kThreadRows][kSets * Shape::kThreadKeys]) {
  constexpr int kKeys = kSets * Shape::kThreadKeys;
#pragma unroll
  for (int i = 0; i < Shape::kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kKeys; ++j) s[i][j] = 0;
  }
#pragma unroll 1
  for (int dim = 0; dim < dims; dim += 4) {
    float4 keys[kKeys];
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      keys[j] = LoadFour(k[j / Shape::kThreadKeys] + dim +
                         j % Shape::kThreadKeys * Shape::kKeyStep * Shape::kQkStride);
    }
#pragma unroll
    for (int i = 0; i < Shape::kThreadRows; ++i) {
      const float4 row = LoadFour(q + dim + i * Shape::kLaneRows * Shape::kQkStride);
      // Each line has its own sums: none waits for the one before it.
#pragma unroll
      for (int j = 0; j < kKeys; ++j) s[i][j] = fmaf(row.x, keys[j].x, s[i][j]);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) s[i][j] = fmaf(row.y, keys[j].y, s[i][j]);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) s[i][j] = fmaf(row.z, keys[j].z, s[i][j]);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) s[i][j] = fmaf(row.w, keys[j].w, s[i][j]);
    }
  }
}

// The weight of a key that the row does not see: zero in every sum, and to be told from that of a
// key which it does see.
__device__ inline float HiddenWeight() { return -0.0f; }
__device__ inline bool IsHidden(float weight) { return __float_as_uint(weight) == 0x80000000u; }

// O of a row = its factor times O + P V over the keys of a tile. `p`, `factors` and `v`: the
// thread's first row, and first dim. kSkipHidden: hidden keys are left out, for V may have a NaN
// there.
//
// The sum of a tile begins at zero and is added to O as a whole, with the multiply-add that
// rescales O. Added key by key to what a hundred thousand keys have summed to, it would drown in
// O's rounding.
template <class Shape, bool kSkipHidden>
__device__ void AddOutputs(const float* p, const float* v, const float* factors,
                           float (&o)[Shape::kThreadRows][4 * Shape::kThreadChunks]) {
  constexpr int kRows = Shape::kThreadRows;
  // As many dims at a time as registers have room for.
  constexpr int kAtOnce = kRows * 4 * Shape::kThreadChunks <= 64             ? Shape::kThreadChunks
                          : kRows * 8 <= 32 && Shape::kThreadChunks % 2 == 0 ? 2
                                                                             : 1;
#pragma unroll
  for (int first = 0; first < Shape::kThreadChunks; first += kAtOnce) {
    float sum[kRows][4 * kAtOnce];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4 * kAtOnce; ++c) sum[i][c] = 0;
    }
#pragma unroll 1
    for (int key = 0; key < Shape::kKeys; key += 4) {
      float values[4][4 * kAtOnce];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int c = 0; c < kAtOnce; ++c) {
          const float4 four =
              LoadFour(v + (key + j) * Shape::kVStride + (first + c) * Shape::kDimStep);
          values[j][4 * c] = four.x;
          values[j][4 * c + 1] = four.y;
          values[j][4 * c + 2] = four.z;
          values[j][4 * c + 3] = four.w;
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 four = LoadFour(p + key + i * Shape::kLaneRows * Shape::kPStride);
        const float weights[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const bool hidden = kSkipHidden && IsHidden(weights[j]);
#pragma unroll
          for (int c = 0; c < 4 * kAtOnce; ++c) {
            sum[i][c] = fmaf(weights[j], hidden ? 0 : values[j][c], sum[i][c]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float factor = factors[i * Shape::kLaneRows];
#pragma unroll
      for (int c = 0; c < 4 * kAtOnce; ++c) {
        o[i][4 * first + c] = fmaf(o[i][4 * first + c], factor, sum[i][c]);
      }
    }
  }
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_PRODUCTS_CUH_
