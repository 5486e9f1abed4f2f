// The products of a tile of attention on CUDA cores, as sums of outer products. Factors are in
// shared memory and sums in registers; cuda_core_shape.h says which thread has which, and why.
#ifndef ATTENTION_DEVICE_CUDA_CORE_PRODUCTS_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_PRODUCTS_CUH_

#include <cstdint>

namespace attnlab::device {

__device__ inline float4 LoadFour(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

// Loads kCount floats, in vectors of kVector that are kStep floats apart.
template <int kCount, int kVector, int kStep>
__device__ void LoadVectors(const float* from, float (&to)[kCount]) {
  static_assert(kVector == 2 || kVector == 4);
#pragma unroll
  for (int i = 0; i < kCount; i += kVector) {
    const float* const vector = from + i / kVector * kStep;
    if constexpr (kVector == 4) {
      const float4 four = LoadFour(vector);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    } else {
      const float2 two = *reinterpret_cast<const float2*>(vector);
      to[i] = two.x, to[i + 1] = two.y;
    }
  }
}

// Stores one vector.
template <int kVector>
__device__ void StoreVector(float* to, const float* from) {
  if constexpr (kVector == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    static_assert(kVector == 2);
    *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
  }
}

// An undefined value, at no cost. Overwriting a register with it where nothing is loaded tells the
// compiler that the old value is dead. Otherwise it would be kept, which takes moves.
__device__ inline float Anything() {
  float x;
  asm("" : "=f"(x));
  return x;
}

// sum = A B over `steps` steps. For each step, A has kRows numbers in groups of four, 16 apart. B
// has kColumns numbers in vectors of kVector, kVectorStep apart. `a` and `b` point to the thread's
// first number of the first step. `steps` is rounded up to a multiple of kUnroll, and to kUnroll if
// it is 0; products beyond `steps` must be zero. `between` is called once per kUnroll steps.
template <int kUnroll, int kAStride, int kBStride, int kVector, int kVectorStep, int kRows,
          int kColumns, typename Between>
__device__ void OuterProducts(const float* a, const float* b, int steps,
                              float (&sum)[kRows][kColumns], const Between& between) {
  static_assert(kUnroll % 2 == 0);
  float rows[2][kRows], columns[2][kColumns];
  const auto load = [&](int step) {
    LoadVectors<kColumns, kVector, kVectorStep>(b + step * kBStride, columns[step % 2]);
    LoadVectors<kRows, 4, 16>(a + step * kAStride, rows[step % 2]);
  };
  const auto forget = [](auto& numbers) {
#pragma unroll
    for (float& number : numbers) number = Anything();
  };
  const auto multiply = [&](int step, int i, int j) {
    sum[i][j] = fmaf(rows[step % 2][i], columns[step % 2][j], sum[i][j]);
  };
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sum[i][j] = 0;
  }
  load(0);
  int first = 0;
#pragma unroll 1
  do {
    between();
#pragma unroll
    for (int step = 0; step < kUnroll; ++step) {
      // Loads are one step ahead of the multiply-adds. Rows of multiply-adds alternate in
      // direction, so within a step each has an operand in common with the one before.
      if (step + 1 < kUnroll) {
        load(step + 1);
      } else {
        forget(columns[0]);
        forget(rows[0]);
        if (first + kUnroll < steps) load(step + 1);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) multiply(step, i, i % 2 == 0 ? j : kColumns - 1 - j);
      }
    }
    a += kUnroll * kAStride;
    b += kUnroll * kBStride;
    first += kUnroll;
  } while (first < steps);
}

// O = factor O + P V over the first `keys` keys of a tile. `keys` is rounded up; P of the extra
// keys is 0. `p`, `v` and `factors` point to the thread's first row and first dim.
//
// The sum over a tile begins at zero. One multiply-add then rescales O and adds the sum. If each
// key were added directly to the O of a hundred thousand keys, its share would drown in O's
// rounding.
template <class Shape, int kFirst = 0, typename Between>
__device__ void AddOutputs(const float* p, const float* v, const float* factors, int keys,
                           float (&o)[Shape::kThreadRows][4 * Shape::kThreadChunks],
                           const Between& between) {
  constexpr int kRows = Shape::kThreadRows;
  // The sum has at most 8 x 8 numbers, which is what registers have room for.
  constexpr int kLeft = Shape::kThreadChunks - kFirst, kMost = 16 / kRows;
  constexpr int kAtOnce = kLeft < kMost ? kLeft : kMost;
  float sum[kRows][4 * kAtOnce];
  OuterProducts<Shape::kUnroll, Shape::kPStride, Shape::kVStride, 4, Shape::kDimStep>(
      p, v + kFirst * Shape::kDimStep, keys, sum, between);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float factor = factors[Shape::RowStep(i)];
#pragma unroll
    for (int c = 0; c < 4 * kAtOnce; ++c) {
      o[i][4 * kFirst + c] = fmaf(o[i][4 * kFirst + c], factor, sum[i][c]);
    }
  }
  if constexpr (kAtOnce < kLeft) {
    AddOutputs<Shape, kFirst + kAtOnce>(p, v, factors, keys, o, [] {});
  }
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_PRODUCTS_CUH_
