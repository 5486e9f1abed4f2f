// Attention for one tile of query rows by one block on CUDA cores. Arithmetic is fp32 whatever the
// element type. K and V stream through shared memory; scores and O stay in registers.
//
//   extern __shared__ float4 shared[];   // Shape::kSharedBytes
//   CudaCoreAttention<Shape, T>(arguments, tile, reinterpret_cast<float*>(shared));
//
// Each tile of keys takes two barriers of the block. If two warps share rows, the pair waits twice
// more. If four do, the pair waits once and the four wait once.
//
//   K has arrived  begin to copy V       S = Q Kᵀ, mask, maximum of each row
//   V has arrived  begin to copy next K  P = exp2(S - maximum) to shared memory; O = factor O + P V
//
// Half of the warps begin to copy the next K after P. If a tile of K is 64 KiB, all warps copy it
// during P V. So each copy overlaps with one of the products, and neither needs a second buffer.
#ifndef ATTENTION_DEVICE_CUDA_CORE_TILE_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_TILE_CUH_

#include <cmath>
#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cuda_core_outputs.cuh"
#include "attention/device/cuda_core_products.cuh"
#include "attention/device/cuda_core_queries.cuh"
#include "attention/device/cuda_core_shape.h"
#include "attention/device/cuda_core_threads.cuh"
#include "attention/device/float_tile_copy.cuh"
#include "attention/device/online_softmax.h"
#include "attention/device/query_tile.h"
#include "attention/device/reduce.cuh"
#include "attention/device/warp_barriers.cuh"

namespace attnlab::device {

// One thread's part of the tile. Registers are scarce, so what is used once per tile of keys or
// less stays in shared memory.
template <class Shape, typename T>
class CudaCoreWalk {
 public:
  __device__ CudaCoreWalk(const Arguments& a, float* shared)
      : a_(a), shared_(shared), tile_(*reinterpret_cast<QueryTile*>(shared + Shape::kQueryTile)) {}

  __device__ void Run(const QueryCopy<Shape, T>& copy_q) {
    int32_t tile = TilesOfWarps<Shape>(shared_)[Shape::kRowWarps].begin;
    const int32_t end = TilesOfWarps<Shape>(shared_)[Shape::kRowWarps].End();
    CopyK copy_k;
    Copy<RowMajor<Shape::kVStride>> copy_v;
    float* const k = shared_ + Shape::kK;
    float* const v = shared_ + Shape::kV;
    if (tile < end) copy_k.Begin(k, a_.k, FromK(tile), Left(tile), a_.d);
    FindVisible<Shape>(a_, tile_, shared_);
    copy_q.Finish(a_, tile_, shared_);
#pragma unroll 1
    for (; tile < end; ++tile) {
      copy_k.Finish(k, a_.k, FromK(tile), Left(tile), a_.d);
      __syncthreads();  // K has arrived, and nobody needs the last V
      const WarpTiles<Shape> seen = TilesOfWarps<Shape>(shared_)[Place().warp_row];
      const bool active = seen.Has(tile);
      copy_v.Begin(v, a_.v, FromV(tile), Left(tile), a_.dv);
      Scores s;
      float max[kRows];
      if (active) {
        Multiply(s);
        if (a_.softcap != 0) Cap(s);
        if (!seen.IsFull(tile)) Hide(s, tile);
        FindMaxima(s, max);
      } else {
        Forget(s, max);
        // Stays in step with the others, which racecheck relies on.
        if constexpr (Shape::kPairs) WaitForPairOfWarps();
      }
      copy_v.Finish(v, a_.v, FromV(tile), Left(tile), a_.dv);
      __syncthreads();  // V has arrived, and nobody needs this K
      // Asynchronous copies of K are of 4 bytes each, and the multiprocessor accepts only some of
      // them at once. So half of the warps begin theirs after the softmax; otherwise all would wait
      // to issue them. For the largest tiles all warps do, between the steps of the product.
      const bool early = !kSpreads && threadIdx.x < Shape::kThreads / 2;
      typename CopyK::Rest rest;
      const auto copy_next = [&] {
        if (tile + 1 >= end) return;
        if constexpr (kSpreads) {
          rest = copy_k.BeginPart(k, a_.k, FromK(tile + 1), Left(tile + 1), a_.d);
        } else {
          copy_k.Begin(k, a_.k, FromK(tile + 1), Left(tile + 1), a_.d);
        }
      };
      if (early) copy_next();
      if (active) Weigh(s, max);
      if (!early) copy_next();
      if constexpr (kShares) {
        WaitForWarps<Shape::kColumnWarps, Shape::kThreads / 32>();
      } else if constexpr (Shape::kPairs) {
        WaitForPairOfWarps();
      } else {
        __syncwarp();
      }
      if (active) {
        const Place at;
        const float* const p = shared_ + Shape::kP + at.row;
        const float* const factors = shared_ + Shape::kFactors + at.row;
        const int keys = TilesOfWarps<Shape>(shared_)[at.warp_row].KeysOf(tile);
        // Never taken, since an active warp has keys. Without this second path to O, ptxas 13.0
        // spills registers in the medium tile of head dim 32.
        if (Shape::kBlocks == 3 && keys == 0) {
#pragma unroll
          for (int i = 0; i < Shape::kThreadRows; ++i) {
#pragma unroll
            for (int c = 0; c < kDims; ++c) o_[i][c] *= factors[Shape::RowStep(i)];
          }
        } else {
          AddOutputs<Shape>(p, v + at.dim, factors, keys, o_, [&] { rest.Next(); });
        }
      }
      rest.Finish();
    }
    Write();
  }

 private:
  static constexpr int kRows = Shape::kOwnRows;  // of S
  static constexpr int kKeys = Shape::kProductKeys;
  static constexpr bool kShares = Shape::kPairsOfRow > 1;  // pairs share rows
  static constexpr int kDims = 4 * Shape::kThreadChunks;
  static constexpr int kUnroll = Shape::kUnroll;
  using Place = ThreadPlace<Shape>;
  template <class Layout>
  using Copy = FloatTileCopy<T, Shape::kKeys, Shape::kDim, Layout, Shape::kThreads,
                             Shape::MostStaged(sizeof(T))>;
  using CopyK = Copy<Transposed<Shape::kKStride>>;
  static constexpr bool kSpreads =
      CopyK::kAsync && Shape::kDim * Shape::kKeys * sizeof(float) >= 64 << 10;
  using Scores = float[kRows][kKeys];                   // of the thread's own rows
  using PairScores = float[Shape::kThreadRows][kKeys];  // of the pair's rows, over half of the dims

  // The first row of a tile of K and of V, and how many rows there are from it on. They are
  // computed again for each tile; kept, they would take six registers.
  __device__ const T* FromK(int32_t tile) const {
    return Pointers<Shape, T>(shared_)[0] + tile * Step(a_.k);
  }
  __device__ const T* FromV(int32_t tile) const {
    return Pointers<Shape, T>(shared_)[1] + tile * Step(a_.v);
  }
  __device__ static int64_t Step(const Rows& rows) { return Shape::kKeys * rows.token_stride; }
  __device__ int Left(int32_t tile) const {
    return static_cast<int>(tile_.kv.length) - tile * Shape::kKeys;
  }

  // Gives s and max a value where they are not used; otherwise they would occupy registers through
  // the whole loop. It is in assembly because the compiler would otherwise do it for active warps
  // as well.
  static __device__ void Forget(Scores& s, float (&max)[kRows]) {
    const auto forget = [](float& x) { asm volatile("mov.b32 %0, 0;" : "=f"(x)); };
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      forget(max[i]);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) forget(s[i][j]);
    }
  }

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

  // Writes the sum and the maximum of each row's softmax to the memory of K, which nobody needs any
  // more. From there on, each thread works on one row.
  __device__ void CollectSoftmax() {
    const Place at;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      softmax_[i].sum = ReduceRow<Sum>(softmax_[i].sum);
      if (kShares) Offer(i, softmax_[i].sum);
    }
    if (kShares) __syncthreads();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (kShares) softmax_[i].sum = TakeAll<Sum>(i);
      if (at.lane_column != 0 || at.warp_column >= 2) continue;
      const int row = at.own_row + Shape::RowStep(i);
      shared_[Shape::kSums + row] = softmax_[i].sum;
      shared_[Shape::kNegMaxima + row] = softmax_[i].neg_max;
    }
  }

  __device__ void Write() {
    CollectSoftmax();
    __syncthreads();
    FinishSoftmax<Shape>(a_, tile_, shared_);
    __syncthreads();
    WriteOutputs<Shape, T>(a_, tile_, shared_, o_);
  }

  const Arguments& a_;
  float* const shared_;
  const QueryTile& tile_;
  OnlineSoftmax softmax_[kRows];  // the sum is this thread's share
  float o_[Shape::kThreadRows][kDims] = {};
};

// Called by the whole block. Put a barrier between two calls.
template <class Shape, typename T>
__device__ void CudaCoreAttention(const Arguments& a, const QueryTile& tile, float* shared) {
  if (tile.begin >= tile.end) return;
  // Before the first copy of K, whose many small copies would delay it.
  const QueryCopy<Shape, T> copy_q(a, tile);
  FindTiles<Shape>(a, tile, shared);
  if (threadIdx.x == 0) {
    *reinterpret_cast<QueryTile*>(shared + Shape::kQueryTile) = tile;
    Pointers<Shape, T>(shared)[0] = static_cast<const T*>(a.k.data) + tile.KvOffset(a.k);
    Pointers<Shape, T>(shared)[1] = static_cast<const T*>(a.v.data) + tile.KvOffset(a.v);
  }
  __syncthreads();
  CudaCoreWalk<Shape, T>(a, shared).Run(copy_q);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_TILE_CUH_
