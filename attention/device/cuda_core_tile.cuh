// Attention of one tile of query rows by a block of threads on CUDA cores, in fp32 whatever the
// element type: K and V stream through shared memory, scores and O stay in registers.
//
//   extern __shared__ float4 shared[];   // Shape::kSharedBytes
//   CudaCoreAttention<Shape, T>(arguments, tile, reinterpret_cast<float*>(shared));
//
// For each tile of keys, with two barriers (three where column warps share rows):
//
//   K is there   begin to copy V    S = Q Kᵀ, mask, maximum of each row
//   V is there   begin to copy K    P = exp2(S - maximum), to shared memory; O = factor O + P V
//                of the next tile
//
// so that either copy has one of the products to hide behind, and neither needs a second buffer.
#ifndef ATTENTION_DEVICE_CUDA_CORE_TILE_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_TILE_CUH_

#include <cmath>
#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/cuda_core_products.cuh"
#include "attention/device/cuda_core_queries.cuh"
#include "attention/device/cuda_core_shape.h"
#include "attention/device/cuda_core_threads.cuh"
#include "attention/device/float_tile_copy.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/online_softmax.h"
#include "attention/device/query_tile.h"
#include "attention/device/reduce.cuh"
#include "attention/device/special_functions.cuh"
#include "attention/device/warp_pair_barrier.cuh"

namespace attnlab::device {

// One thread's part of the tile. Registers are what it is short of: what is used once a tile of
// keys or less stays in shared memory.
template <class Shape, typename T>
class CudaCoreWalk {
 public:
  __device__ CudaCoreWalk(const Arguments& a, float* shared)
      : a_(a), shared_(shared), tile_(*reinterpret_cast<QueryTile*>(shared + Shape::kQueryTile)) {}

  __device__ void Run() {
    LoadQueries<Shape, T>(a_, tile_, shared_);
    const KvTiles all = tile_.Tiles(a_.mask, Shape::kKeys);
    const TileNumbers tiles = NumbersOf<Shape>(all);
    const T* from_k =
        static_cast<const T*>(a_.k.data) + tile_.KvOffset(a_.k) + all.begin * a_.k.token_stride;
    const T* from_v =
        static_cast<const T*>(a_.v.data) + tile_.KvOffset(a_.v) + all.begin * a_.v.token_stride;
    // Keys from the next tile on.
    int left = static_cast<int>(tile_.kv.length - all.begin);
    Copy<Shape::kQkStride> copy_k;
    Copy<Shape::kVStride> copy_v;
    float* const k = shared_ + Shape::kK;
    float* const v = shared_ + Shape::kV;
    if (tiles.begin < tiles.end) copy_k.Begin(k, a_.k, from_k, left, a_.d);
#pragma unroll 1
    for (int32_t tile = tiles.begin; tile < tiles.end; ++tile) {
      copy_k.Finish(k, a_.k, from_k, left, a_.d);
      __syncthreads();  // K is there, and nobody needs the last V
      const TileNumbers seen = WarpTiles<Shape>(shared_)[Place().warp_row];
      const bool active = seen.Has(tile), masked = !seen.IsFull(tile);
      copy_v.Begin(v, a_.v, from_v, left, a_.dv);
      // Without a value where they are not used they would count as used all through the loop.
      float s[kRows][kKeys] = {};
      float max[kRows] = {};
      if (active) {
        Multiply(s);
        if (a_.softcap != 0) Cap(s);
        if (masked) Hide(s, tile);
        FindMaxima(s, max);
      }
      copy_v.Finish(v, a_.v, from_v, left, a_.dv);
      __syncthreads();  // V is there, and nobody needs this K
      left -= Shape::kKeys;
      from_k += Shape::kKeys * a_.k.token_stride;
      from_v += Shape::kKeys * a_.v.token_stride;
      if (tile + 1 < tiles.end) copy_k.Begin(k, a_.k, from_k, left, a_.d);
      // Whether V has what must not be multiplied by the weight of a hidden key, 0.
      bool special = false;
      if (a_.mask.kind != Mask::Kind::kNone && !tiles.IsFull(tile)) {
        special = __syncthreads_or(HasSpecial(v)) != 0;
      }
      const bool skip_hidden = special && masked;
      if (active) {
        Weigh(s, max);
        if (skip_hidden) MarkHidden(tile);
      }
      if constexpr (Shape::kColumnWarps > 1) {
        __syncthreads();
      } else {
        __syncwarp();
      }
      if (!active) continue;
      const Place at;
      const float* const p = shared_ + Shape::kP + at.row * Shape::kPStride;
      const float* const factors = shared_ + Shape::kFactors + at.row;
      if (skip_hidden) {
        AddOutputs<Shape, true>(p, v + at.dim, factors, o_);
      } else {
        AddOutputs<Shape, false>(p, v + at.dim, factors, o_);
      }
    }
    Write();
  }

 private:
  static constexpr int kRows = Shape::kThreadRows;
  static constexpr int kKeys = Shape::kThreadKeys;
  static constexpr int kDims = 4 * Shape::kThreadChunks;
  using Place = ThreadPlace<Shape>;
  template <int kStride>
  using Copy = FloatTileCopy<T, Shape::kKeys, Shape::kDim, kStride, Shape::kThreads,
                             Shape::MostStaged(sizeof(T))>;

  // S = Q Kᵀ. Where column warps share rows, two of them share keys as well: each multiplies half
  // of the dims for the keys of both and adds up what it has for the other's through the place of
  // P. A thread then has twice the scores at a time, and reads fewer factors for each.
  __device__ void Multiply(float (&s)[kRows][kKeys]) const {
    const Place at;
    const float* const q = shared_ + Shape::kQ + at.row * Shape::kQkStride;
    const float* const k = shared_ + Shape::kK + at.key * Shape::kQkStride;
    if constexpr (Shape::kColumnWarps == 1) {
      Scores<Shape, 1>(q, {k}, a_.d, s);
    } else {
      const bool second = at.warp_column % 2 != 0;
      const int half = (a_.d + 7) / 8 * 4, first = second ? half : 0;
      const int others = second ? -Shape::kLaneColumns : Shape::kLaneColumns;  // keys from ours
      float both[kRows][2 * kKeys];
      Scores<Shape, 2>(q + first, {k + first, k + first + others * Shape::kQkStride},
                       second ? a_.d - half : half, both);
      float* const p = shared_ + Shape::kP + at.row * Shape::kPStride + at.key;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys; ++j) {
          p[i * Shape::kLaneRows * Shape::kPStride + j * Shape::kKeyStep + others] =
              both[i][kKeys + j];
        }
      }
      WaitForPairOfWarps();
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys; ++j) {
          s[i][j] = both[i][j] + p[i * Shape::kLaneRows * Shape::kPStride + j * Shape::kKeyStep];
        }
      }
    }
  }

  // softcap tanh(s / softcap), in base 2.
  __device__ void Cap(float (&s)[kRows][kKeys]) const {
    const float cap = a_.softcap * kLog2e;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) s[i][j] = cap * tanhf(s[i][j]);
    }
  }

  // Of keys that a row does not see the score is minus infinity, whatever K has there.
  __device__ void Hide(float (&s)[kRows][kKeys], int32_t tile) const {
    const Place at;
    const uint32_t first = static_cast<uint32_t>(tile) * Shape::kKeys + at.key;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const VisibleKeys visible = Visible<Shape>(shared_)[at.row + i * Shape::kLaneRows];
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        if (!visible.Has(first + j * Shape::kKeyStep)) s[i][j] = -INFINITY;
      }
    }
  }

  // The largest score of each row, of all threads that have one; where other warps do, they find
  // it after the next barrier in shared memory.
  __device__ void FindMaxima(const float (&s)[kRows][kKeys], float (&max)[kRows]) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      max[i] = s[i][0];
#pragma unroll
      for (int j = 1; j < kKeys; ++j) max[i] = fmaxf(max[i], s[i][j]);
      max[i] = ReduceRow<Max>(max[i]);
      if (Shape::kColumnWarps > 1) Offer(i, max[i]);
    }
  }

  // A number of this warp for row i, for the other warps of the row.
  __device__ void Offer(int i, float number) {
    const Place at;
    if (at.lane_column != 0) return;
    shared_[Shape::kExchange + at.warp_column * Shape::kRows + at.row + i * Shape::kLaneRows] =
        number;
  }
  // Of what all of them have offered.
  template <typename Op>
  __device__ float TakeAll(int i) const {
    const float* const offered = shared_ + Shape::kExchange + Place().row + i * Shape::kLaneRows;
    float number = offered[0];
#pragma unroll
    for (int c = 1; c < Shape::kColumnWarps; ++c) {
      number = Op::Of(number, offered[c * Shape::kRows]);
    }
    return number;
  }

  // P of the tile, and what O is to be multiplied by, to shared memory.
  __device__ void Weigh(const float (&s)[kRows][kKeys], const float (&max)[kRows]) {
    const Place at;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = at.row + i * Shape::kLaneRows;
      const float factor = softmax_[i].Grow(Shape::kColumnWarps > 1 ? TakeAll<Max>(i) : max[i]);
      if (at.lane_column == 0 && at.warp_column == 0) shared_[Shape::kFactors + row] = factor;
      const float base = softmax_[i].Base();
      float* const p = shared_ + Shape::kP + row * Shape::kPStride + at.key;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        const float weight = Exp2(s[i][j] - base);
        sum += weight;
        p[j * Shape::kKeyStep] = weight;
      }
      softmax_[i].sum += sum;
    }
  }

  // Makes hidden keys of P what AddOutputs() skips. Scores do not say which they are: that of a key
  // which the row sees may be minus infinity, too.
  __device__ void MarkHidden(int32_t tile) {
    const Place at;
    const uint32_t first = static_cast<uint32_t>(tile) * Shape::kKeys + at.key;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = at.row + i * Shape::kLaneRows;
      const VisibleKeys visible = Visible<Shape>(shared_)[row];
      float* const p = shared_ + Shape::kP + row * Shape::kPStride + at.key;
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        if (!visible.Has(first + j * Shape::kKeyStep)) p[j * Shape::kKeyStep] = HiddenWeight();
      }
    }
  }

  __device__ bool HasSpecial(const float* v) const {
    bool special = false;
    for (int i = 4 * threadIdx.x; i < Shape::kKeys * Shape::kVStride; i += 4 * Shape::kThreads) {
      const float4 four = LoadFour(v + i);
      // NaN and infinity alone are not 0 when multiplied by it.
      special |= !(four.x * 0 + four.y * 0 + four.z * 0 + four.w * 0 == 0);
    }
    return special;
  }

  // O and LSE of the rows that there are.
  __device__ void Write() {
    __syncthreads();  // what rows see is there, and nobody needs the last factors and maxima
    const Place at;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      softmax_[i].sum = ReduceRow<Sum>(softmax_[i].sum);
      if (Shape::kColumnWarps > 1) Offer(i, softmax_[i].sum);
    }
    if (Shape::kColumnWarps > 1) __syncthreads();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (Shape::kColumnWarps > 1) softmax_[i].sum = TakeAll<Sum>(i);
      if (at.lane_column != 0 || at.warp_column != 0) continue;
      const int row = at.row + i * Shape::kLaneRows;
      float inverse = softmax_[i].Inverse(), lse = softmax_[i].Lse();
      // Keys whose scores are all minus infinity have no softmax: 0 / 0.
      if (softmax_[i].sum == 0 && Visible<Shape>(shared_)[row].count != 0) inverse = lse = NAN;
      shared_[Shape::kFactors + row] = inverse;
      shared_[Shape::kLse + row] = lse;
    }
    __syncthreads();
    int64_t* const offsets = reinterpret_cast<int64_t*>(shared_ + Shape::kOffsets);
#pragma unroll 1
    for (int row = ThreadIndex(); row < Shape::kRows; row += Shape::kThreads) {
      if (tile_.begin + row >= tile_.end) break;
      offsets[row] = tile_.Offset(a_.o, tile_.begin + row);
      if (a_.lse.data == nullptr) continue;
      static_cast<float*>(a_.lse.data)[tile_.Offset(a_.lse, tile_.begin + row)] =
          shared_[Shape::kLse + row];
    }
    __syncthreads();
    const int64_t rows = tile_.end - tile_.begin;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = at.row + i * Shape::kLaneRows;
      if (row < rows) WriteRow(offsets[row], at.dim, shared_[Shape::kFactors + row], o_[i]);
    }
  }

  __device__ void WriteRow(int64_t offset, int first_dim, float inverse,
                           const float (&o)[kDims]) const {
    T* const to = static_cast<T*>(a_.o.data) + offset;
#pragma unroll
    for (int c = 0; c < Shape::kThreadChunks; ++c) {
      const int dim = first_dim + c * Shape::kDimStep;
      const float4 four = make_float4(o[4 * c] * inverse, o[4 * c + 1] * inverse,
                                      o[4 * c + 2] * inverse, o[4 * c + 3] * inverse);
      if (a_.o.whole_chunks) {
        if (dim < a_.dv) StoreFour(to + dim, four);
      } else {
        if (dim < a_.dv) to[dim] = FromFloat<T>(four.x);
        if (dim + 1 < a_.dv) to[dim + 1] = FromFloat<T>(four.y);
        if (dim + 2 < a_.dv) to[dim + 2] = FromFloat<T>(four.z);
        if (dim + 3 < a_.dv) to[dim + 3] = FromFloat<T>(four.w);
      }
    }
  }

  const Arguments& a_;
  float* const shared_;
  const QueryTile& tile_;
  OnlineSoftmax softmax_[kRows];  // the sum is this thread's share
  float o_[kRows][kDims] = {};
};

// The whole block calls it, and once more only behind a barrier.
template <class Shape, typename T>
__device__ void CudaCoreAttention(const Arguments& a, const QueryTile& tile, float* shared) {
  if (tile.begin >= tile.end) return;
  if (threadIdx.x == 0) *reinterpret_cast<QueryTile*>(shared + Shape::kQueryTile) = tile;
  __syncthreads();
  CudaCoreWalk<Shape, T>(a, shared).Run();
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_TILE_CUH_
