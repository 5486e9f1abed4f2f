// The rows of a query tile that a warp of tensor cores has, 16 or 32, whatever multiplies: which
// lane has which row, which keys rows see, and the online softmax of their scores.
#ifndef ATTENTION_FA2_WARP_ROWS_CUH_
#define ATTENTION_FA2_WARP_ROWS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/mma.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/special_functions.cuh"
#include "attention/device/thread_index.cuh"
#include "attention/mask.h"

namespace attnlab::fa2 {

// Accumulators of kRows rows: kBlocks blocks of 8 columns, of S or of O.
template <int kRows, int kBlocks>
struct Accumulators {
  static constexpr int kRowBlocks = kRows / 16;
  device::AccumulatorFragment x[kRowBlocks][kBlocks];

  __device__ void Clear() {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) x[m][n] = {};
    }
  }

  // Of the lane's r-th row, its i-th of 2 * kBlocks elements: column i / 2 * 8 + 2 * Pair() + i
  // % 2.
  __device__ float& At(int r, int i) { return x[r / 2][i / 2].x[r % 2 * 2 + i % 2]; }
  __device__ float At(int r, int i) const { return x[r / 2][i / 2].x[r % 2 * 2 + i % 2]; }
};

// For kKeys keys of a tile and kDim columns of V. kWarps: how many share these rows
// (warp_pair.cuh).
template <int kRows, int kKeys, int kDim, int kWarps = 1>
class WarpRows {
 public:
  static constexpr int kLaneRows = kRows / 8;  // rows of which a lane has elements
  using Scores = Accumulators<kRows, kKeys / 8>;
  using Output = Accumulators<kRows, kDim / 8>;

  // Found anew where they are needed, since registers are dear. Pair: of four lanes that share
  // rows.
  static __device__ int Lane() { return device::ThreadIndex() % 32; }
  static __device__ int Quad() { return Lane() / 4; }
  static __device__ int Pair() { return Lane() % 4; }
  // Of the tile, the warp's first row, and the r-th row of which this lane has elements.
  static __device__ int First() { return device::ThreadIndex() / (32 * kWarps) * kRows; }
  static __device__ int Row(int r) { return First() + r / 2 * 16 + r % 2 * 8 + Quad(); }

  __device__ void Begin() {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      offset_[r] = kNoKey;
      sum_[r] = 0;
    }
  }

  static __device__ void Cap(Scores& s, const device::Arguments& a) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        s.At(r, i) = a.softcap * device::Tanh(s.At(r, i) * a.scale_by_softcap);
      }
    }
  }

  // Minus infinity for keys that a row does not see; `visible` has the keys [x, y) of each row of
  // the tile. Most tiles are cut at one side alone.
  static __device__ void MaskOut(Scores& s, const int2* visible, int first_key) {
    const int first = first_key + 2 * Pair();
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int2 seen = visible[Row(r)];
      const int begin = seen.x - first, end = seen.y - first;
      if (__any_sync(0xFFFFFFFF, end < kKeys)) {
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i) {
          s.At(r, i) = i / 2 * 8 + i % 2 < end ? s.At(r, i) : -INFINITY;
        }
      }
      if (__any_sync(0xFFFFFFFF, begin > 0)) {
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i) {
          s.At(r, i) = i / 2 * 8 + i % 2 >= begin ? s.At(r, i) : -INFINITY;
        }
      }
    }
  }

  // Whether a row of the warp sees one of the kKeys keys from this one on.
  static __device__ bool SeesSome(const int2* visible, int first_key) {
    bool some = false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int2 seen = visible[Row(r)];
      some |= seen.x < first_key + kKeys && seen.y > first_key;
    }
    return __any_sync(0xFFFFFFFF, some);
  }

  using LaneRows = float[kLaneRows];

  // Of each row, the largest score that this lane has.
  static __device__ void FindMaxima(const Scores& s, LaneRows& max) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      max[r] = s.At(r, 0);
#pragma unroll
      for (int i = 1; i < kKeys / 4; ++i) max[r] = fmaxf(max[r], s.At(r, i));
    }
  }

  // Exponentials are relative to a base, of which offset_ is the negative. It follows the maximum
  // only where that has grown by more than 2^kMostGrowth: P stays far within its type, O is hardly
  // ever rescaled, and lanes need not tell each other their maxima. Then it is the maximum, not
  // something near it: P of a key that alone counts is 1, which no type rounds. Whether a row's
  // base moves depends on that row alone. Returns whether one has moved. `max`: what FindMaxima()
  // found; it becomes that of all lanes.
  __device__ bool MoveBases(LaneRows& max, float scale_log2, Output& o) {
    bool large = false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      large |= fmaf(max[r], scale_log2, offset_[r]) > kMostGrowth;
    }
    if (!__any_sync(0xFFFFFFFF, large)) return false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFF, max[r], 1));
      max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFF, max[r], 2));
      const bool moves = fmaf(max[r], scale_log2, offset_[r]) > kMostGrowth;
      const float offset = moves ? -max[r] * scale_log2 : offset_[r];
      const float factor = moves ? device::Exp2(offset - offset_[r]) : 1;
      offset_[r] = offset;
      sum_[r] *= factor;
#pragma unroll
      for (int i = 0; i < kDim / 4; ++i) o.At(r, i) *= factor;
    }
    return true;
  }

  // Where warps share rows: of the lane's r-th row takes the other warp's base, if that is larger.
  // Returns the factor for what is relative to the other's.
  __device__ float Join(int r, float others_offset, Output& o) {
    const float least = fminf(offset_[r], others_offset);
    const float factor = device::Exp2(least - offset_[r]);
    sum_[r] *= factor;
#pragma unroll
    for (int i = 0; i < kDim / 4; ++i) o.At(r, i) *= factor;
    offset_[r] = least;
    return device::Exp2(least - others_offset);
  }
  __device__ const LaneRows& Offsets() const { return offset_; }
  __device__ LaneRows& Sums() { return sum_; }

  // P of a score of the lane's r-th row; Add() is told of all of them.
  __device__ float Weight(int r, float score, float scale_log2) const {
    return device::Exp2(fmaf(score, scale_log2, offset_[r]));
  }
  __device__ void Add(int r, float weights) { sum_[r] += weights; }

  // After the last key: adds up what the lanes of a row have. A row that sees keys, but none of a
  // score above minus infinity, is NaN, as 0 / 0 is; one that sees none is 0 with LSE minus
  // infinity.
  __device__ void Finish(const device::Arguments& a, const device::QueryTile& tile) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      sum_[r] += __shfl_xor_sync(0xFFFFFFFF, sum_[r], 1);
      sum_[r] += __shfl_xor_sync(0xFFFFFFFF, sum_[r], 2);
      if (sum_[r] == 0) {
        const KvRange seen = tile.Visible(a.mask, tile.begin + Row(r));
        if (seen.begin < seen.end) sum_[r] = NAN;
      }
    }
  }
  // And then, of the lane's r-th row:
  __device__ float Inverse(int r) const { return sum_[r] == 0 ? 0 : device::Reciprocal(sum_[r]); }
  __device__ bool IsNumber(int r) const { return sum_[r] * 0 == 0; }

  // LSE of the warp's rows, where it is wanted.
  __device__ void StoreLse(const device::Arguments& a, const device::QueryTile& tile) const {
    if (a.lse.data == nullptr || Pair() != 0) return;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int64_t row = tile.begin + Row(r);
      if (row >= tile.end) continue;
      constexpr float kLn2 = 0.693147180559945309f;
      static_cast<float*>(a.lse.data)[tile.Offset(a.lse, row)] =
          sum_[r] == 0 ? -INFINITY : (log2f(sum_[r]) - offset_[r]) * kLn2;
    }
  }

 private:
  static constexpr float kMostGrowth = 8;
  // The offset of a row that has seen no key: any that comes moves the base, and until then P is 0.
  static constexpr float kNoKey = 3e38f;

  // Of the lane's rows: what is added to scores in base 2 before the exponential, and the sum of
  // this lane's P, not rounded.
  float offset_[kLaneRows], sum_[kLaneRows];
};

// Scores are in base 2. With a softcap scale comes before it; otherwise it is part of the
// exponential. A scale of 0 would make NaN of minus infinity.
__device__ inline float ScaleLog2(const device::Arguments& a, bool capped) {
  constexpr float kLog2E = 1.44269504088896341f;
  return (capped ? 1.0f : fmaxf(a.scale, 1e-30f)) * kLog2E;
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_WARP_ROWS_CUH_
