// One query tile of FlashAttention-2 with nvcuda::wmma.
//
// wmma multiplies 16 x 16 by 16 x 16 in one call, on any tensor core, and does not say which lane
// holds which element of a fragment. Whatever is uniform over a fragment can be done in registers;
// what needs to know a row cannot. So
//
//   S   goes to shared memory, where a row can be found: mask, maximum, exponentials, sum;
//   P   goes to shared memory, since fragments of a product's result and of a factor differ;
//   O   stays in registers, but to be rescaled row by row it is multiplied by a fragment that has
//       each row's factor in all of its elements: fragments of one type have one layout, whichever
//       that is. At the end it goes to shared memory, too.
//
// These trips, and fragments of K and V that serve 16 rows alone, are what tensor_core_tile.cuh
// does without: there the layout is known, P is S's registers rounded, and O is rescaled in place.
#ifndef ATTENTION_FA2_WMMA_TILE_CUH_
#define ATTENTION_FA2_WMMA_TILE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/online_softmax.h"
#include "attention/device/query_tile.h"
#include "attention/device/special_functions.cuh"
#include "attention/mask.h"

namespace attnlab::fa2 {

// T: __half, or from 8.0 on __nv_bfloat16.
template <class Shape, typename T>
class WmmaTile {
  static constexpr int kBlock = Shape::kBlock, kKeys = Shape::kKeys, kStride = Shape::kStride;
  static constexpr int kKeyBlocks = kKeys / kBlock, kDimBlocks = Shape::kHeadDim / kBlock;

  template <class Use, class Layout>
  using Factor = nvcuda::wmma::fragment<Use, kBlock, kBlock, kBlock, T, Layout>;
  using Rows = Factor<nvcuda::wmma::matrix_a, nvcuda::wmma::row_major>;
  using Columns = Factor<nvcuda::wmma::matrix_b, nvcuda::wmma::row_major>;
  using ColumnsOfTransposed = Factor<nvcuda::wmma::matrix_b, nvcuda::wmma::col_major>;
  using Product = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kBlock, kBlock, kBlock, float>;

 public:
  // `shared`: Shape::kSharedBytes, aligned to 32.
  __device__ WmmaTile(const device::Arguments& a, const device::QueryTile& tile, char* shared)
      : a_(a), tile_(tile), shared_(shared) {
    const KvRange seen = tile.Visible(a.mask, Row());
    seen_begin_ = static_cast<int>(seen.begin);
    seen_end_ = static_cast<int>(seen.end);
  }

  __device__ void Run() {
    const T* const q = static_cast<const T*>(a_.q.data);
    Copy(shared_, Shape::kRows, static_cast<int>(tile_.end - tile_.begin), a_.d, a_.q.whole_chunks,
         [&](int row) { return q + tile_.Offset(a_.q, tile_.begin + row); });
    const T* const k = static_cast<const T*>(a_.k.data) + tile_.KvOffset(a_.k);
    const T* const v = static_cast<const T*>(a_.v.data) + tile_.KvOffset(a_.v);
    const device::KvTiles tiles = tile_.Tiles(a_.mask, kKeys);
#pragma unroll
    for (int n = 0; n < kDimBlocks; ++n) nvcuda::wmma::fill_fragment(o_[n], 0.0f);
    bool nonfinite = false;
#pragma unroll 1
    for (int64_t first = tiles.begin; first < tiles.end; first += kKeys) {
      __syncthreads();  // nobody needs the last K and V
      const int64_t left = tile_.kv.length - first;
      const int keys = left < kKeys ? static_cast<int>(left) : kKeys;
      Copy(shared_ + Shape::kK, kKeys, keys, a_.d, a_.k.whole_chunks,
           [&](int row) { return k + (first + row) * a_.k.token_stride; });
      Copy(shared_ + Shape::kV, kKeys, keys, a_.dv, a_.v.whole_chunks,
           [&](int row) { return v + (first + row) * a_.v.token_stride; });
      const bool special = ZeroNonfinite();
      nonfinite |= __syncthreads_or(special) != 0;  // and K and V are there
      MultiplyQk();
      Rescale(Softmax(static_cast<int>(first)));
      AddPv();
    }
    Store(v, nonfinite);
  }

 private:
  // Two lanes have a row of S, P and O in shared memory between them, element by element in turn.
  static __device__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ int RowOfWarp() { return static_cast<int>(threadIdx.x) % 32 / 2; }
  static __device__ int Turn() { return static_cast<int>(threadIdx.x) % 2; }
  // In the sequence's tile; it may lie beyond its end.
  __device__ int64_t Row() const { return tile_.begin + Warp() * kBlock + RowOfWarp(); }

  __device__ T* Q() const { return reinterpret_cast<T*>(shared_) + Warp() * kBlock * kStride; }
  __device__ T* K() const { return reinterpret_cast<T*>(shared_ + Shape::kK); }
  __device__ T* V() const { return reinterpret_cast<T*>(shared_ + Shape::kV); }
  __device__ float* S() const {
    return reinterpret_cast<float*>(shared_ + Shape::kS) + Warp() * kBlock * Shape::kScoreStride;
  }
  __device__ T* P() const {
    return reinterpret_cast<T*>(shared_ + Shape::kP) + Warp() * kBlock * Shape::kWeightStride;
  }

  // `count` rows from row_at(i) to a tile of `rows`. Rows and columns that there are not become
  // zeros: what is multiplied with them counts for nothing, as NaN would not.
  template <typename RowAt>
  static __device__ void Copy(char* to, int rows, int count, int dim, bool whole_chunks,
                              const RowAt& row_at) {
    constexpr int kChunk = 8;  // elements of 16 bytes
    constexpr int kRowChunks = Shape::kHeadDim / kChunk;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < rows * kRowChunks; i += Shape::kThreads) {
      const int row = i / kRowChunks, column = i % kRowChunks * kChunk;
      alignas(16) T values[kChunk];
      *reinterpret_cast<uint4*>(values) = make_uint4(0, 0, 0, 0);
      if (row < count && column < dim) {
        const T* const from = row_at(row) + column;
        if (whole_chunks) {
          *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(from);
        } else {
#pragma unroll
          for (int j = 0; j < kChunk; ++j) {
            if (column + j < dim) values[j] = from[j];
          }
        }
      }
      *reinterpret_cast<uint4*>(to + (row * kStride + column) * sizeof(T)) =
          *reinterpret_cast<const uint4*>(values);
    }
  }

  // 0 times NaN is NaN, so a V that is not finite would reach rows that do not see it. Puts 0 in
  // its place, of which Store() makes up for those who see it. Whether there was one.
  __device__ bool ZeroNonfinite() const {
    __syncthreads();
    bool special = false;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * Shape::kHeadDim; i += Shape::kThreads) {
      T& x = V()[i / Shape::kHeadDim * kStride + i % Shape::kHeadDim];
      if (isfinite(device::ToFloat(x))) continue;
      x = device::FromFloat<T>(0);
      special = true;
    }
    return special;
  }

  // S = Q Kᵀ, to shared memory.
  __device__ void MultiplyQk() const {
    Product s[kKeyBlocks];
#pragma unroll
    for (int n = 0; n < kKeyBlocks; ++n) nvcuda::wmma::fill_fragment(s[n], 0.0f);
#pragma unroll
    for (int k = 0; k < kDimBlocks; ++k) {
      Rows q;
      nvcuda::wmma::load_matrix_sync(q, Q() + k * kBlock, kStride);
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n) {
        ColumnsOfTransposed keys;
        nvcuda::wmma::load_matrix_sync(keys, K() + n * kBlock * kStride + k * kBlock, kStride);
        nvcuda::wmma::mma_sync(s[n], q, keys, s[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < kKeyBlocks; ++n) {
      nvcuda::wmma::store_matrix_sync(S() + n * kBlock, s[n], Shape::kScoreStride,
                                      nvcuda::wmma::mem_row_major);
    }
    __syncwarp();
  }

  // The score in base 2 that a product of Q and K stands for.
  __device__ float Score(float product) const {
    constexpr float kLog2E = 1.44269504088896341f;
    if (a_.softcap == 0) return product * (a_.scale * kLog2E);
    return a_.softcap * kLog2E * tanhf(product * a_.scale_by_softcap);
  }

  // P of the keys from `first` on, to shared memory. Returns the factor of the lane's row of O.
  __device__ float Softmax(int first) {
    constexpr int kLaneKeys = kKeys / 2;
    const float* const row = S() + RowOfWarp() * Shape::kScoreStride + Turn();
    float s[kLaneKeys], max = -INFINITY;
#pragma unroll
    for (int j = 0; j < kLaneKeys; ++j) {
      const int key = first + 2 * j + Turn();
      const bool seen = key >= seen_begin_ && key < seen_end_;
      s[j] = seen ? Score(row[2 * j]) : -INFINITY;
      max = fmaxf(max, s[j]);
    }
    const float factor = softmax_.Grow(fmaxf(max, __shfl_xor_sync(0xFFFFFFFF, max, 1)));
    const float base = softmax_.Base();
    T* const weights = P() + RowOfWarp() * Shape::kWeightStride + Turn();
#pragma unroll
    for (int j = 0; j < kLaneKeys; ++j) {
      const float weight = device::Exp2(s[j] - base);
      softmax_.sum += weight;
      weights[2 * j] = device::FromFloat<T>(weight);
    }
    return factor;
  }

  // O = factor O, with each row's factor.
  __device__ void Rescale(float factor) {
    if (__all_sync(0xFFFFFFFF, factor == 1)) return;
    float* const row = S() + RowOfWarp() * Shape::kScoreStride + Turn();
#pragma unroll
    for (int j = 0; j < kBlock / 2; ++j) row[2 * j] = factor;
    __syncwarp();
    Product factors;
    nvcuda::wmma::load_matrix_sync(factors, S(), Shape::kScoreStride, nvcuda::wmma::mem_row_major);
#pragma unroll
    for (int n = 0; n < kDimBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < Product::num_elements; ++i) o_[n].x[i] *= factors.x[i];
    }
  }

  // O += P V.
  __device__ void AddPv() {
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kKeyBlocks; ++k) {
      Rows p;
      nvcuda::wmma::load_matrix_sync(p, P() + k * kBlock, Shape::kWeightStride);
#pragma unroll
      for (int n = 0; n < kDimBlocks; ++n) {
        Columns values;
        nvcuda::wmma::load_matrix_sync(values, V() + k * kBlock * kStride + n * kBlock, kStride);
        nvcuda::wmma::mma_sync(o_[n], p, values, o_[n]);
      }
    }
  }

  // O and LSE, 16 columns at a time by way of S's memory.
  __device__ void Store(const T* v, bool nonfinite) {
    softmax_.sum += __shfl_xor_sync(0xFFFFFFFF, softmax_.sum, 1);
    float inverse = softmax_.Inverse(), lse = softmax_.Lse();
    // Keys whose scores are all minus infinity have no softmax: 0 / 0.
    if (softmax_.sum == 0 && seen_begin_ < seen_end_) inverse = lse = NAN;
    const bool there = Row() < tile_.end;
    if (there && a_.lse.data != nullptr && Turn() == 0) {
      static_cast<float*>(a_.lse.data)[tile_.Offset(a_.lse, Row())] = lse;
    }
    T* const o = static_cast<T*>(a_.o.data) + (there ? tile_.Offset(a_.o, Row()) : 0);
    const float* const row = S() + RowOfWarp() * Shape::kScoreStride;
#pragma unroll
    for (int n = 0; n < kDimBlocks; ++n) {
      __syncwarp();
      nvcuda::wmma::store_matrix_sync(S(), o_[n], Shape::kScoreStride, nvcuda::wmma::mem_row_major);
      __syncwarp();
#pragma unroll 1
      for (int i = Turn(); i < kBlock; i += 2) {
        const int column = n * kBlock + i;
        if (!there || column >= a_.dv) break;
        float x = row[i] * inverse;
        if (nonfinite) x += SumOfNonfinite(v + column);
        o[column] = device::FromFloat<T>(x);
      }
    }
  }

  // Of a column of V, over the keys that the lane's row sees: however small their P, infinity stays
  // infinity.
  __device__ float SumOfNonfinite(const T* column) const {
    float sum = 0;
#pragma unroll 1
    for (int64_t key = seen_begin_; key < seen_end_; ++key) {
      const float x = device::ToFloat(column[key * a_.v.token_stride]);
      if (!isfinite(x)) sum += x;
    }
    return sum;
  }

  const device::Arguments& a_;
  const device::QueryTile& tile_;
  char* const shared_;
  int seen_begin_, seen_end_;      // the keys that the lane's row sees
  device::OnlineSoftmax softmax_;  // of that row; the sum is the lane's share
  Product o_[kDimBlocks];          // of the warp's rows
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_WMMA_TILE_CUH_
