// A thread's rows of a tile of attention on CUDA cores: the scores and the softmax of some, O of
// others. cuda_core_shape.h says which. Factors and P are in shared memory; other code copies K and
// V there, and decides which warps wait for which.
#ifndef ATTENTION_DEVICE_CUDA_CORE_ROWS_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_ROWS_CUH_

#include <cmath>
#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cuda_core_outputs.cuh"
#include "attention/device/cuda_core_products.cuh"
#include "attention/device/cuda_core_queries.cuh"
#include "attention/device/cuda_core_shape.h"
#include "attention/device/cuda_core_threads.cuh"
#include "attention/device/online_softmax.h"
#include "attention/device/query_tile.h"
#include "attention/device/reduce.cuh"
#include "attention/device/warp_barriers.cuh"

namespace attnlab::device {

// Registers are scarce, so what is used once per tile of keys or less stays in shared memory.
template <class Shape, typename T>
class CudaCoreRows {
 public:
  static constexpr int kRows = Shape::kOwnRows;  // of S
  static constexpr int kKeys = Shape::kProductKeys;
  static constexpr bool kShares = Shape::kPairsOfRow > 1;  // pairs share rows
  using Scores = float[kRows][kKeys];                      // of the thread's own rows

  __device__ CudaCoreRows(const Arguments& a, float* shared)
      : a_(a), shared_(shared), tile_(*reinterpret_cast<QueryTile*>(shared + Shape::kQueryTile)) {}

  // S = Q Kᵀ of the thread's own rows. The warps of a pair exchange their sums in the memory of P.
  __device__ void Multiply(Scores& s) const {
    constexpr int kStep = Shape::kLaneColumns * Shape::kKeyVector;
    const Place at;
    const float* const q = shared_ + Shape::kQ + at.row;
    const float* const k = shared_ + Shape::kK + at.key;
    if constexpr (!Shape::kPairs) {
      OuterProducts<kUnroll, Shape::kQStride, Shape::kKStride, Shape::kKeyVector, kStep>(q, k, a_.d,
                                                                                         s, [] {});
    } else {
      const bool second = at.warp_column % 2 != 0;
      // Rounded up to whole loops, so the two parts may differ.
      const int half = (a_.d + 2 * kUnroll - 1) / (2 * kUnroll) * kUnroll,
                first = second ? half : 0;
      PairScores both;
      OuterProducts<kUnroll, Shape::kQStride, Shape::kKStride, Shape::kKeyVector, kStep>(
          q + first * Shape::kQStride, k + first * Shape::kKStride, second ? a_.d - half : half,
          both, [] {});
      // A branch, not a selection per element: each warp of the pair knows which one it is.
      if (second) {
        OfferSums<0>(both);
      } else {
        OfferSums<1>(both);
      }
      WaitForPairOfWarps();
      if (second) {
        AddOfferedSums<1>(both, s);
      } else {
        AddOfferedSums<0>(both, s);
      }
    }
  }

  // softcap tanh(s / softcap), in base 2.
  __device__ void Cap(Scores& s) const {
    const float cap = a_.softcap * kLog2e;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) s[i][j] = cap * tanhf(s[i][j]);
    }
  }

  // Sets the scores of keys that a row does not see to minus infinity, whatever K has there.
  __device__ void Hide(Scores& s, int32_t tile) const {
    const Place at;
    const uint32_t first = static_cast<uint32_t>(tile) * Shape::kKeys + at.key;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const VisibleKeys visible = Visible<Shape>(shared_)[at.own_row + Shape::RowStep(i)];
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        if (!visible.Has(first + Shape::KeyStep(j))) s[i][j] = -INFINITY;
      }
    }
  }

  // The largest score of each row over the threads of its pair of warps. Other pairs that share the
  // row find it in shared memory after the next barrier.
  __device__ void FindMaxima(const Scores& s, float (&max)[kRows]) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      max[i] = s[i][0];
#pragma unroll
      for (int j = 1; j < kKeys; ++j) max[i] = fmaxf(max[i], s[i][j]);
      max[i] = ReduceRow<Max>(max[i]);
      if (kShares) Offer(i, max[i]);
    }
  }

  // Writes P of the tile, and the factor for O, to shared memory.
  __device__ void Weigh(Scores& s, const float (&max)[kRows]) {
    const Place at;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float factor = softmax_[i].Grow(kShares ? TakeAll<Max>(i) : max[i]);
      if (at.lane_column == 0 && at.warp_column < 2) {
        shared_[Shape::kFactors + at.own_row + Shape::RowStep(i)] = factor;
      }
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        s[i][j] = softmax_[i].Weight(s[i][j]);
        sum += s[i][j];
      }
      softmax_[i].sum += sum;
    }
    float* const p = shared_ + Shape::kP + at.key * Shape::kPStride + at.own_row;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      float column[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) column[i] = s[i][j];
      StoreRows(p + Shape::KeyStep(j) * Shape::kPStride, column);
    }
  }

  // Writes O and LSE to global memory. All threads call it when nobody needs K, V and P any more.
  // `wait` waits for them all.
  template <typename Wait>
  __device__ void Write(const Wait& wait) {
    CollectSoftmax(wait);
    wait();
    FinishSoftmax<Shape>(a_, tile_, shared_);
    wait();
    WriteOutputs<Shape, T>(a_, tile_, shared_, o_);
  }

 protected:
  static constexpr int kDims = 4 * Shape::kThreadChunks;
  static constexpr int kUnroll = Shape::kUnroll;
  using Place = ThreadPlace<Shape>;

  const Arguments& a_;
  float* const shared_;
  const QueryTile& tile_;
  OnlineSoftmax softmax_[kRows];  // the sum is this thread's share
  float o_[Shape::kThreadRows][kDims] = {};

  // Writes the sum and the maximum of each row's softmax to the memory of K, which nobody needs any
  // more. From there on, each thread works on one row.
  template <typename Wait>
  __device__ void CollectSoftmax(const Wait& wait) {
    const Place at;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      softmax_[i].sum = ReduceRow<Sum>(softmax_[i].sum);
      if (kShares) Offer(i, softmax_[i].sum);
    }
    if (kShares) wait();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (kShares) softmax_[i].sum = TakeAll<Sum>(i);
      if (at.lane_column != 0 || at.warp_column >= 2) continue;
      const int row = at.own_row + Shape::RowStep(i);
      shared_[Shape::kSums + row] = softmax_[i].sum;
      shared_[Shape::kNegMaxima + row] = softmax_[i].neg_max;
    }
  }

 private:
  using PairScores = float[Shape::kThreadRows][kKeys];  // of the pair's rows, over half of the dims

  // OfferSums() stores the sums that a thread has for the rows of warp kPart of the pair.
  // AddOfferedSums() adds what the other warp offered to the thread's own sums.
  template <int kPart>
  __device__ void OfferSums(const PairScores& both) const {
    const Place at;
    float* const p =
        shared_ + Shape::kP + at.key * Shape::kPStride + at.row + Shape::OwnRowStep(kPart);
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      float rows[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) rows[i] = both[kPart * kRows + i][j];
      StoreRows(p + Shape::KeyStep(j) * Shape::kPStride, rows);
    }
  }
  template <int kPart>
  __device__ void AddOfferedSums(const PairScores& both, Scores& s) const {
    const Place at;
    const float* const p = shared_ + Shape::kP + at.key * Shape::kPStride + at.own_row;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      float offered[kRows];
      LoadVectors<kRows, Shape::kRowVector, 16>(p + Shape::KeyStep(j) * Shape::kPStride, offered);
#pragma unroll
      for (int i = 0; i < kRows; ++i) s[i][j] = both[kPart * kRows + i][j] + offered[i];
    }
  }

  // Stores what a thread has of its own rows for one key, in P or its place.
  static __device__ void StoreRows(float* to, const float (&x)[kRows]) {
#pragma unroll
    for (int i = 0; i < kRows; i += Shape::kRowVector) {
      StoreVector<Shape::kRowVector>(to + Shape::RowStep(i), x + i);
    }
  }

  // Offers a number of this pair of warps for its i-th row to the other pairs of the row.
  __device__ void Offer(int i, float number) {
    const Place at;
    if (at.lane_column != 0) return;
    shared_[Shape::kExchange + at.warp_column / 2 * Shape::kRows + at.own_row + Shape::RowStep(i)] =
        number;
  }
  // Reduces what all pairs of the row have offered.
  template <typename Op>
  __device__ float TakeAll(int i) const {
    const float* const offered = shared_ + Shape::kExchange + Place().own_row + Shape::RowStep(i);
    float number = offered[0];
#pragma unroll
    for (int pair = 1; pair < Shape::kPairsOfRow; ++pair) {
      number = Op::Of(number, offered[pair * Shape::kRows]);
    }
    return number;
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_ROWS_CUH_
