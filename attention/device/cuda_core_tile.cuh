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

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cuda_core_products.cuh"
#include "attention/device/cuda_core_queries.cuh"
#include "attention/device/cuda_core_rows.cuh"
#include "attention/device/cuda_core_shape.h"
#include "attention/device/cuda_core_threads.cuh"
#include "attention/device/float_tile_copy.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/warp_barriers.cuh"

namespace attnlab::device {

// One thread's part of the tile.
template <class Shape, typename T>
class CudaCoreWalk : CudaCoreRows<Shape, T> {
  using Base = CudaCoreRows<Shape, T>;
  using Base::a_, Base::shared_, Base::tile_, Base::o_;
  using Base::kRows, Base::kKeys, Base::kShares, Base::kDims;
  using typename Base::Scores, typename Base::Place;

 public:
  using Base::Base;

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
        this->Multiply(s);
        if (a_.softcap != 0) this->Cap(s);
        if (!seen.IsFull(tile)) this->Hide(s, tile);
        this->FindMaxima(s, max);
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
      if (active) this->Weigh(s, max);
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
    this->Write([] { __syncthreads(); });
  }

 private:
  template <class Layout>
  using Copy = FloatTileCopy<T, Shape::kKeys, Shape::kDim, Layout, Shape::kThreads,
                             Shape::MostStaged(sizeof(T))>;
  using CopyK = Copy<Transposed<Shape::kKStride>>;
  static constexpr bool kSpreads =
      CopyK::kAsync && Shape::kDim * Shape::kKeys * sizeof(float) >= 64 << 10;

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
