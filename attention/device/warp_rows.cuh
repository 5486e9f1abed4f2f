// The 16 or 32 rows of a query tile that one warp of tensor cores has, whichever instruction
// multiplies: which lane has which row, which keys a row sees, and the online softmax of the
// scores.
#ifndef ATTENTION_DEVICE_WARP_ROWS_CUH_
#define ATTENTION_DEVICE_WARP_ROWS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/fragments.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/online_softmax.h"
#include "attention/device/query_tile.h"
#include "attention/device/special_functions.cuh"
#include "attention/device/thread_index.cuh"

namespace attnlab::device {

// For kKeys keys of a tile and kDim columns of V. kWarps warps share these rows.
template <int kRows, int kKeys, int kDim, int kWarps = 1>
class WarpRows {
 public:
  static constexpr int kLaneRows = kRows / 8;  // rows of which one lane has elements
  using Scores = Accumulators<kRows, kKeys / 8>;
  using Output = Accumulators<kRows, kDim / 8>;
  using LaneRows = float[kLaneRows];

  // Computed where they are needed, to save registers. Quad(): which four lanes share a row.
  // Pair(): the lane among those four.
  static __device__ int Lane() { return ThreadIndex() % 32; }
  static __device__ int Quad() { return Lane() / 4; }
  static __device__ int Pair() { return Lane() % 4; }
  // The warp's first row in the tile, and the r-th row of which this lane has elements.
  static __device__ int First() { return ThreadIndex() / (32 * kWarps) * kRows; }
  static __device__ int Row(int r) { return First() + r / 2 * 16 + r % 2 * 8 + Quad(); }

  // `S` and `O` below are Scores and Output, or accumulators of wgmma, which have the same At().
  template <typename S>
  static __device__ void Cap(S& s, const Arguments& a) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        s.At(r, i) = a.softcap * Tanh(s.At(r, i) * a.scale_by_softcap);
      }
    }
  }

  // Sets the scores of keys that a row does not see to minus infinity. `visible` has the keys [x,
  // y) that each row of the tile sees.
  template <typename S>
  static __device__ void MaskOut(S& s, const int2* visible, int first_key) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int2 seen = visible[Row(r)];
      MaskOut(s, r, seen.x - first_key, seen.y - first_key);
    }
  }

  // The same for the lane's r-th row, which sees keys [begin, end) of the tile. ptxas moves bits to
  // predicates seven at a time, where comparisons take an instruction each.
  template <typename S>
  static __device__ void MaskOut(S& s, int r, int begin, int end) {
    static_assert(kKeys <= 128);
    const uint32_t seen = KeysBelow(end, Pair(), kKeys) & ~KeysBelow(begin, Pair(), kKeys);
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) s.At(r, i) = seen >> i & 1 ? s.At(r, i) : -INFINITY;
  }

  // Whether any row of the warp sees any key of the tile, which begins with first_key. The tile has
  // the keys of all warps that share these rows, so those warps get the same answer.
  static __device__ bool SeesSome(const int2* visible, int first_key) {
    constexpr int kTileKeys = kKeys * kWarps;
    bool some = false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int2 seen = visible[Row(r)];
      // Also right for keys near 2^31.
      some |= seen.x - first_key < kTileKeys && seen.y > first_key;
    }
    return __any_sync(0xFFFFFFFF, some);
  }

  // The largest score of each row that this lane has. Four chains of dependent instructions take a
  // quarter of one chain's time.
  template <typename S>
  static __device__ void FindMaxima(const S& s, LaneRows& max) {
    LaneRows odd;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) max[r] = s.At(r, 0), odd[r] = s.At(r, 1);
#pragma unroll
    for (int i = 2; i < kKeys / 4; i += 2) {
#pragma unroll
      for (int r = 0; r < kLaneRows; ++r) {
        max[r] = fmaxf(max[r], s.At(r, i));
        odd[r] = fmaxf(odd[r], s.At(r, i + 1));
      }
    }
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) max[r] = fmaxf(max[r], odd[r]);
  }

  // The largest `x` of the four lanes that share a row.
  static __device__ float RowMax(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, 2));
  }

  // Takes in the maxima of FindMaxima(). In most tiles no score exceeds its row's running maximum
  // by far. Then O is not rescaled, and the lanes of a row need not exchange their maxima. Whether
  // a row is rescaled depends on that row alone, so its bits do too. Returns whether any row of the
  // warp was rescaled.
  __device__ bool Rescale(LaneRows& max, float scale_log2, Output& o) {
    if (!AnyExceeds(max, scale_log2)) return false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) Multiply(o, r, GrowRow(r, max[r], scale_log2));
    return true;
  }

  // The same where O is not there yet: returns whether any row has to be rescaled, by `factors`. log_top:
  // as of GrowLazily().
  __device__ bool Grow(LaneRows& max, float scale_log2, LaneRows& factors, float log_top = 0) {
    if (!AnyExceeds(max, scale_log2)) return false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) factors[r] = GrowRow(r, max[r], scale_log2, log_top);
    return true;
  }
  template <typename O>
  static __device__ void Multiply(O& o, const LaneRows& factors) {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) Multiply(o, r, factors[r]);
  }

  // For warps that share rows: moves the lane's r-th row to the other warp's maximum if that is
  // larger. Returns the factor for numbers that are relative to the other's maximum.
  __device__ float Join(int r, float others_neg_max, Output& o) {
    const float least = fminf(rows_[r].neg_max, others_neg_max);
    Multiply(o, r, rows_[r].MoveTo(least));
    return OnlineSoftmax::Power(least - others_neg_max);
  }

  // The state of the lane's r-th row. Its sum is the lane's share, over unrounded weights.
  __device__ OnlineSoftmax& State(int r) { return rows_[r]; }
  __device__ const OnlineSoftmax& State(int r) const { return rows_[r]; }

  // After the last key: adds up the lanes' shares of each row's sum. With a function for both steps, ptxas
  // spills in the portable kernel of head dim 256.
  __device__ void Finish() {
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      rows_[r].sum += __shfl_xor_sync(0xFFFFFFFF, rows_[r].sum, 1);
      rows_[r].sum += __shfl_xor_sync(0xFFFFFFFF, rows_[r].sum, 2);
    }
  }

  // After Finish(): stores the LSE of the warp's rows, if it is wanted.
  __device__ void StoreLse(const Arguments& a, const QueryTile& tile) const {
    if (a.lse.data == nullptr || Pair() != 0) return;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) {
      const int64_t row = tile.begin + Row(r);
      if (row >= tile.end) continue;
      static_cast<float*>(a.lse.data)[tile.Offset(a.lse, row)] = rows_[r].Lse();
    }
  }

 private:
  __device__ bool AnyExceeds(const LaneRows& max, float scale_log2) const {
    bool exceeds = false;
#pragma unroll
    for (int r = 0; r < kLaneRows; ++r) exceeds |= rows_[r].Exceeds(max[r], scale_log2);
    return __any_sync(0xFFFFFFFF, exceeds);
  }

  // Exchanges the maxima of a row's lanes, and returns the factor for the row's O.
  __device__ float GrowRow(int r, float max, float scale_log2, float log_top = 0) {
    return rows_[r].GrowLazily(RowMax(max), scale_log2, log_top);
  }

  template <typename O>
  static __device__ void Multiply(O& o, int r, float factor) {
#pragma unroll
    for (int i = 0; i < kDim / 4; ++i) o.At(r, i) *= factor;
  }

  OnlineSoftmax rows_[kLaneRows];
};

// The factor that turns scores into base 2. With a softcap, the problem's scale is applied before
// the cap; otherwise it is part of the exponential. A scale of 0 would turn minus infinity into
// NaN.
__device__ inline float ScaleLog2(const Arguments& a, bool capped) {
  constexpr float kLog2E = 1.44269504088896341f;
  return (capped ? 1.0f : fmaxf(a.scale, 1e-30f)) * kLog2E;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_WARP_ROWS_CUH_
