// The softmax of a consumer of the Hopper kernel: scores of a tile become weights.
//
// Most tiles have no score that is far above those before. So a tile's weights are computed at once,
// relative to the running maxima that there are, and its own maxima are not looked for. The sums of
// the weights, which are needed anyway, show whether that was right: a score that is far above makes
// them large. Then the weights are scaled down or, if they overflowed, computed again from Q and K.
// Where that may be done, tiles that need no mask are called plain. They have functions of their own.
//
// A warp decides on its 16 rows together, but what changes a row's bits depends on its own scores and
// on its place in the sequence alone, and on where its keys are divided (shares.h).
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_SOFTMAX_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_SOFTMAX_CUH_

#include "attention/device/hopper/wgmma.cuh"
#include "attention/device/online_softmax.h"
#include "attention/device/warp_rows.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_scales.cuh"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

template <typename Shape, bool kCaps>
class HopperSoftmax {
 public:
  // Whether tiles may do without maxima. K then stays longer in its stage, which takes more than two;
  // and a softcap leaves too few registers, and so does head dim 256 of fp8.
  static constexpr bool kSpeculates =
      Shape::kStages > 2 && !kCaps && !(Shape::kFp8 && Shape::kDimV > 128);

  using Scores = device::wgmma::Accumulators<Shape::kKeys>;
  using Rows = device::WarpRows<16, Shape::kKeys, Shape::kDimV>;
  using LaneRows = typename Rows::LaneRows;
  // Elements of a row that a lane has of each part of a tile with scales of its own.
  static constexpr int kParts = TileScales<Shape>::kParts, kOfPart = Shape::kKeys / 4 / kParts;

  __device__ explicit HopperSoftmax(const HopperArguments& h)
      : h_(h), scale_log2_(device::ScaleLog2(h.a, kCaps)) {}

  // A new query tile, of which this is consumer `group`.
  __device__ void Begin(const Work& work, int group) {
    rows_ = Rows();
    // The weights of a row beyond the sequence are 0 or NaN, whatever it holds: they decide nothing.
    if (work.rows < group * 64 + 64) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (Rows::Row(r) >= work.rows) rows_.State(r).neg_max = -INFINITY;
      }
    }
    const int first = static_cast<int>(h_.pack.Divide(group * 64)),
              last = static_cast<int>(h_.pack.Divide(group * 64 + 63));
    const int end = max(0, min(work.sees_end + first, work.keys));
    full_begin_ = max(0, work.sees_begin + last + kKeys - 1) / kKeys;
    full_end_ = end / kKeys;
    all_seen_ = end > full_end_ * kKeys;
    if constexpr (Shape::kFp8) {
      const float factor = kCaps ? h_.a.scale_by_softcap : scale_log2_;
      row_scales_[0] *= factor, row_scales_[1] *= factor;
    }
  }

  // For Begin(), but earlier, because that takes a while: when the query tile before has all its weights.
  __device__ void LoadRowScales(const Work& work) {
    if constexpr (Shape::kFp8) {
      const int pack = static_cast<int>(h_.pack.Value());
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = min(Rows::Row(r), work.rows - 1),
                  query = static_cast<int>(h_.pack.Divide(row));
        row_scales_[r] = h_.q_scales.At(work.sequence, work.first_query + query,
                                        work.q.head * pack + row - query * pack);
      }
    }
  }

  // Replaces the scores of tile i of keys by weights, and rounds them. Returns whether O has to be multiplied by
  // `factors`. In the first tile of a query tile there is no O yet, so Begin() of the consumer ignores it.
  //   meanwhile  is called between the exponentials of one row and those of the other
  //   round      rounds the weights
  // So the exponentials of the second row, which wait for their unit, leave slots for the first row's rounding.
  template <typename Meanwhile, typename Round>
  __device__ bool Weigh(Scores& s, const Work& work, int i, const TileScales<Shape>& scales,
                        LaneRows& factors, Meanwhile meanwhile, Round round) {
    if constexpr (Shape::kFp8) {
      if constexpr (kCaps) CapScaled(s, scales);
    } else if constexpr (kCaps) {
      Rows::Cap(s, h_.a);
    }
    if (i >= full_end_ || i < full_begin_) {
      MaskOut(s, work, i);
    } else {
      all_seen_ = true;
    }
    factors[0] = factors[1] = 1;  // here, or ptxas spills
    LaneRows max;
    bool rescale;
    if constexpr (Shape::kFp8) {
      FindScaledMaxima(s, scales, max);
      rescale = rows_.Grow(max, 1, factors, kLogTop);
    } else {
      Rows::FindMaxima(s, max);
      rescale = rows_.Grow(max, scale_log2_, factors);
    }
    LaneRows sums, tops;
    Exponentiate(s, ExponentsOf(scales), scales, sums, tops, meanwhile);
    round();
#pragma unroll
    for (int r = 0; r < 2; ++r) SetMostSum(r, work, i, scales, sums);
    Add(sums);
    return rescale;
  }

  // How many tiles are plain, from tile i on down to tile 0.
  __device__ int PlainTiles(int i) const {
    return kSpeculates && all_seen_ && i < full_end_ ? i + 1 - full_begin_ : 0;
  }

  // What turns the scores of each row and part into powers of 2.
  struct Exponents {
    float factors[2][kParts], offsets[2][kParts];
  };
  __device__ Exponents ExponentsOf(const TileScales<Shape>& scales) const {
    Exponents e;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const float neg_max = rows_.State(r).neg_max;
        e.factors[r][part] = Factor(r, part, scales);
        e.offsets[r][part] = Shape::kFp8 ? neg_max + scales.LogV(part) : neg_max;
      }
    }
    return e;
  }
  // Weigh() for a plain tile. Returns whether its weights are small enough. If so, Add() comes next, if not,
  // MakeSmaller().
  template <typename Meanwhile, typename Round>
  __device__ bool WeighPlain(Scores& s, const Exponents& exponents, const TileScales<Shape>& scales,
                             LaneRows& sums, LaneRows& tops, Meanwhile meanwhile,
                             Round round) const {
    Exponentiate(s, exponents, scales, sums, tops, meanwhile);
    round();
    return !AnyAbove(most_sums_, tops);
  }
  __device__ void Add(const LaneRows& sums) {
#pragma unroll
    for (int r = 0; r < 2; ++r) rows_.State(r).sum += sums[r];
  }
  // For a plain tile whose weights are too large. The caller rounds them again, and multiplies O by `factors`.
  //   again      computes the scores once more
  template <typename Again>
  __device__ void MakeSmaller(Scores& s, const Work& work, int i, const TileScales<Shape>& scales,
                              LaneRows& sums, LaneRows& tops, LaneRows& factors, Again again) {
    factors[0] = factors[1] = 1;
    if (AnyAbove({kMostScaled, kMostScaled}, tops)) {
      WeighFar(s, scales, sums, tops, factors, again);
    }
    ScaleDown(s, work, i, scales, sums, tops, factors);
    Add(sums);
  }

  __device__ Rows& rows() { return rows_; }

 private:
  static constexpr int kKeys = Shape::kKeys;
  // The largest sum of some of a lane's weights that may be left as it is. No weight is larger, so P is in the range
  // of fp16 or fp8.
  static constexpr float kMostSum = Shape::kFp8 ? 448 : 256;
  // The logarithm of a row's largest weight when its maximum is found, and that weight. Of fp8, a larger one would
  // leave small ones more bits, but sums would be too large more often: a warp that scales down holds up the others.
  static constexpr float kLogTop = Shape::kFp8 ? 4 : 0, kTop = Shape::kFp8 ? 16 : 1;
  // Of fp8, whether a row is scaled down as soon as a key may outweigh all others (SetMostSum()). With three consumers
  // that takes 3 % longer.
  static constexpr bool kScalesEarly = Shape::kFp8 && kSpeculates && Shape::kConsumers == 2;
  // Equal weights are not scaled again.
  static_assert(kTop * (Shape::kKeys / 4 / TileScales<Shape>::kParts / 2) < kMostSum);
  // The logarithm of the largest weight that is scaled down, and that weight. 1 / 2^100 is normal. Of fp8, the sum
  // leaves out V's scale, which may be 2^-64 (Quantize()): 2^60 stays in the range of fp32.
  static constexpr float kMostLog = 100,
                         kMostScaled = Shape::kFp8 ? 1.152921505e18f : 1.267650600e30f;

  __device__ void MaskOut(Scores& s, const Work& work, int i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = static_cast<int>(h_.pack.Divide(Rows::Row(r)));
      Rows::MaskOut(s, r, work.sees_begin + query - i * kKeys,
                    min(work.sees_end + query, work.keys) - i * kKeys);
    }
  }

  // What turns a score of the lane's r-th row into one in base 2. Of fp8, scales of the row and of the keys
  // are part of it; with a softcap, they come before the cap.
  __device__ float Factor(int r, int part, const TileScales<Shape>& scales) const {
    if constexpr (Shape::kFp8 && !kCaps) return Scale(r, part, scales);
    return scale_log2_;
  }
  // A factor of 0 would turn minus infinity into NaN.
  __device__ float Scale(int r, int part, const TileScales<Shape>& scales) const {
    const float scale = row_scales_[r] * scales.K(part);
    return scale < 1e-35f ? 1e-35f : scale;  // NaN stays
  }

  __device__ void CapScaled(Scores& s, const TileScales<Shape>& scales) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const float scale = Scale(r, part, scales);
#pragma unroll
        for (int j = part * kOfPart; j < (part + 1) * kOfPart; ++j) {
          s.At(r, j) = h_.a.softcap * device::Tanh(s.At(r, j) * scale);
        }
      }
    }
  }
  __device__ void FindScaledMaxima(const Scores& s, const TileScales<Shape>& scales,
                                   LaneRows& max) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) FindScaledMaximum(s, r, scales, max);
  }
  __device__ void FindScaledMaximum(const Scores& s, int r, const TileScales<Shape>& scales,
                                    LaneRows& max) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int first = part * kOfPart;
      float chains[2] = {s.At(r, first), s.At(r, first + 1)};
#pragma unroll
      for (int j = 2; j < kOfPart; ++j) chains[j % 2] = fmaxf(chains[j % 2], s.At(r, first + j));
      const float largest =
          fmaf(fmaxf(chains[0], chains[1]), Factor(r, part, scales), scales.LogV(part));
      max[r] = part == 0 ? largest : fmaxf(max[r], largest);
    }
  }

  // For weights above kMostScaled: computes the scores again, of which the largest becomes its row's maximum.
  // In 16 bits all rows get theirs again, with the same bits; in fp8 only rows with such weights.
  template <typename Again>
  __device__ void WeighFar(Scores& s, const TileScales<Shape>& scales, LaneRows& sums,
                           LaneRows& tops, LaneRows& factors, Again again) {
    LaneRows max = {0, 0};
    if constexpr (Shape::kFp8) {
      const bool far[2] = {Rows::RowMax(tops[0]) > kMostScaled,
                           Rows::RowMax(tops[1]) > kMostScaled};
      again(s, far);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!far[r]) continue;
        FindScaledMaximum(s, r, scales, max);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float largest = Rows::RowMax(max[r]);  // all lanes take part
        if (!far[r]) continue;
        auto& row = rows_.State(r);
        factors[r] = row.MoveTo(fminf(row.neg_max, kLogTop - largest));
        Exponentiate(s, r, ExponentsOf(scales), scales, sums, tops);
      }
    } else {
      again(s);
      Rows::FindMaxima(s, max);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        auto& row = rows_.State(r);
        const float largest = Rows::RowMax(max[r]);
        if (fmaf(largest, scale_log2_, row.neg_max) > kMostLog) {
          factors[r] = row.MoveTo(-largest * scale_log2_);
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) Exponentiate(s, r, ExponentsOf(scales), scales, sums, tops);
    }
  }

  // The rows' shares of the sum, and the largest of the sums that they are made of. Of fp8, V's scale is part of the
  // weights, but not of the rows' sums. Two chains of sums, so that an addition need not wait for the one before.
  static __device__ void Exponentiate(Scores& s, int r, const Exponents& exponents,
                                      const TileScales<Shape>& scales, LaneRows& sums,
                                      LaneRows& tops) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float chains[2] = {0, 0};
      const float factor = exponents.factors[r][part], offset = exponents.offsets[r][part];
#pragma unroll
      for (int j = part * kOfPart; j < (part + 1) * kOfPart; ++j) {
        s.At(r, j) = device::OnlineSoftmax::Power(fmaf(s.At(r, j), factor, offset));
        chains[j % 2] += s.At(r, j);
      }
      float sum = chains[0] + chains[1];
      if constexpr (Shape::kFp8) sum *= scales.InverseV(part);
      sums[r] = part == 0 ? sum : sums[r] + sum;
      const float top = fmaxf(chains[0], chains[1]);
      tops[r] = part == 0 ? top : fmaxf(tops[r], top);
    }
  }
  template <typename Meanwhile>
  __device__ void Exponentiate(Scores& s, const Exponents& exponents,
                               const TileScales<Shape>& scales, LaneRows& sums, LaneRows& tops,
                               Meanwhile meanwhile) const {
    Exponentiate(s, 0, exponents, scales, sums, tops);
    // ptxas would move what meanwhile() waits for before most exponentials, but not past a branch. This one is never
    // taken, and costs nothing.
    if (Shape::kAwaitsLate && h_.a.dv < 0) __trap();
    meanwhile();
    Exponentiate(s, 1, exponents, scales, sums, tops);
  }

  // A sum that is NaN stays NaN in any case.
  static __device__ bool AnyAbove(const LaneRows& limits, const LaneRows& sums) {
    return __any_sync(0xFFFFFFFF, sums[0] > limits[0] || sums[1] > limits[1]);
  }

  // fp8 rounds a weight by up to 1/16 unless it is a power of two, as the largest one is when a row is scaled down.
  // That counts where few keys have most of a row's weight. So a sum of new weights may not be above the lane's
  // share of the row's sum: `sums` of tile i, and those before. A row that saw few keys of its first tile has a
  // small sum anyway.
  __device__ void SetMostSum(int r, const Work& work, int i, const TileScales<Shape>& scales,
                             const LaneRows& sums) {
    if constexpr (kScalesEarly) {
      const int query = static_cast<int>(h_.pack.Divide(Rows::Row(r)));
      const bool sees_few = work.sees_end + query - i * kKeys < kKeys / 2;
      const float share =
          device::OnlineSoftmax::Power(scales.LogV(0)) * (rows_.State(r).sum + sums[r]);
      most_sums_[r] = sees_few ? kMostSum : fminf(fmaxf(share, 1.01f * kTop), kMostSum);
    }
  }

  // Makes the weights of each row with a large sum smaller. The largest becomes kTop, which fp8 does not round,
  // as often it outweighs all others: any other power of two made O's RMSE 1.09e-2 instead of 8.9e-3.
  __device__ void ScaleDown(Scores& s, const Work& work, int i, const TileScales<Shape>& scales,
                            LaneRows& sums, const LaneRows& tops, LaneRows& factors) {
    LaneRows max;
    Rows::FindMaxima(s, max);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float excess = Rows::RowMax(tops[r] - most_sums_[r]), largest = Rows::RowMax(max[r]);
      // A sum may be above a low limit while no weight is above kTop: then only the limit changes.
      const float factor = rows_.State(r).GrowTo(excess > 0 ? fmaxf(largest * (1 / kTop), 1) : 1);
      factors[r] *= factor;
      sums[r] *= factor;
      if (excess > 0) SetMostSum(r, work, i, scales, sums);
#pragma unroll
      for (int j = 0; j < kKeys / 4; ++j) s.At(r, j) *= factor;
    }
  }

  const HopperArguments& h_;
  const float scale_log2_;
  float row_scales_[Shape::kFp8 ? 2 : 1];
  Rows rows_;
  LaneRows most_sums_ = {kMostSum, kMostSum};  // a tile with a larger sum of weights is scaled down
  int full_begin_ = 0, full_end_ = 0;          // the tiles of keys that need no mask
  bool all_seen_ = false;                      // whether each row saw a key before the next of them
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SOFTMAX_CUH_
