// A part of a query tile on tensor cores (mma.sync): Q has 16 bits; K and V have the same dtype, or
// are fp8_e4m3.
//
// All warps of a block have the same 16 rows, and each has every fourth tile of 16 keys. A warp
// copies its own tiles, some ahead, so that the only waits are for memory. At the end the warps'
// parts are merged in shared memory.
//
// A warp reads the page table one tile ahead of its copies: lane i has the entry for a tile's key
// i % 16. A tile within one page is copied like one of K and V that are not paged.
#ifndef ATTENTION_SPLIT_K_TENSOR_CORES_CUH_
#define ATTENTION_SPLIT_K_TENSOR_CORES_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "attention/cuda/launch.h"
#include "attention/device/arguments.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/fragment_products.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/kv_stream.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"
#include "attention/device/tile_copy.cuh"
#include "attention/device/warp_rows.cuh"
#include "attention/split_k/call.h"
#include "attention/split_k/fp8_products.cuh"
#include "attention/split_k/parts.cuh"
#include "attention/split_k/shape.h"
#include "attention/split_k/split.h"

namespace attnlab::split_k {

// One warp's keys of a part.
template <class Shape, typename T>
class SplitWarp {
  static_assert(sizeof(device::QueryTile) <= Shape::kRing - Shape::kTile);
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys, kWarps = Shape::kWarps;
  static constexpr bool kFp8 = Shape::kFp8;
  using Kv = std::conditional_t<kFp8, uint8_t, T>;
  // 32 warps share the rows: none has rows of its own.
  using Warp = device::WarpRows<Shape::kWarpRows, kKeys, kDim, /*kWarps=*/32>;
  // What the tensor cores multiply.
  using Products = device::FragmentProducts<Shape, std::conditional_t<kFp8, __half, T>>;
  using OfFp8 = Fp8Products<Shape>;
  using Place = device::Swizzle<kDim / 8>;
  using Copy = device::TileCopy<Kv, kKeys, kDim, 32>;

 public:
  __device__ SplitWarp(const device::Arguments& a, const device::Keys& keys, int tiles,
                       char* shared)
      : a_(a),
        keys_(keys),
        warp_(device::Uniform(static_cast<int>(threadIdx.x) / 32)),
        tiles_(tiles),
        shared_(shared) {}

  // Begins to copy the first tiles of keys. `query`: the rows that all warps have.
  __device__ void Begin(const device::QueryTile& query) {
    // All entries first, so that their reads overlap.
    int32_t entries[Shape::kStages];
#pragma unroll
    for (int i = 0; i < Shape::kStages; ++i) entries[i] = EntryOfLane(query, i);
#pragma unroll
    for (int i = 0; i < Shape::kStages - 1; ++i) CopyTile(query, i, entries[i]);
    next_entry_ = entries[Shape::kStages - 1];
  }

  // After a barrier: Q, what its rows see and the query tile are in shared memory. `k_scale`: of K,
  // if it is fp8.
  __device__ void Walk(float k_scale) {
    const auto& query = *reinterpret_cast<const device::QueryTile*>(shared_ + Shape::kTile);
    std::conditional_t<kFp8, typename OfFp8::KeptQ, typename Products::KeptQ> q;
    [[maybe_unused]] float factors[2];
    if constexpr (kFp8) {
      OfFp8::template KeepQ<T>(shared_ + Shape::kQ, Warp::Quad(), Warp::Pair(), q, factors);
      factors[0] *= k_scale, factors[1] *= k_scale;
    } else {
      Products::KeepQ(LaneAddress(Shape::kQ, Warp::Lane() % 16, Warp::Lane() / 16), q);
    }
    __syncthreads();  // all warps have Q; the first one's next copies overwrite it
    o_.Clear();
    const bool capped = a_.softcap != 0;
    const float scale_log2 = device::ScaleLog2(a_, capped);
    const auto* const visible = reinterpret_cast<const int2*>(shared_ + Shape::kVisible);
#pragma unroll 1
    for (int i = 0; TileOf(i) < tiles_; ++i) {
      device::CopyAsyncWait<Shape::kStages - 2>();
      __syncwarp();  // all lanes' copies of this tile are there, and all are done with the last one
      CopyTile(query, i + Shape::kStages - 1, next_entry_);
      next_entry_ =
          EntryOfLane(query, i + Shape::kStages);  // used a tile later, when it has arrived
      const int k = Stage(i), v = k + Shape::kTileBytes, lane = Warp::Lane();
      typename Products::Scores s;
      if constexpr (kFp8) {
        OfFp8::MultiplyQk(Fp8Address(k), q, s);
#pragma unroll
        for (int x = 0; x < 4; ++x) s.At(0, x) *= factors[0], s.At(1, x) *= factors[1];
      } else {
        Products::MultiplyQk(0, LaneAddress(k, lane % 8 + lane / 16 * 8, lane / 8 % 2), q, s);
      }
      if (capped) Warp::Cap(s, a_);
      if (keys_.Masked(TileOf(i))) Warp::MaskOut(s, visible, keys_.first + TileOf(i) * kKeys);
      typename Warp::LaneRows max;
      Warp::FindMaxima(s, max);
      rows_.Rescale(max, scale_log2, o_);
      typename Products::Probabilities p;
      Products::Weigh(s, scale_log2, rows_, p);
      if constexpr (kFp8) {
        OfFp8::AddPv(Fp8Address(v), p, o_);
      } else {
        Products::AddPv(LaneAddress(v, lane % 16, lane / 16), p, o_);
      }
    }
    device::CopyAsyncWait<0>();
    rows_.Finish();
  }

  // After another barrier: writes this warp's part to the shared memory of its block, O times
  // `v_scale`.
  __device__ void WritePart(float v_scale) const {
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) {
      const int row = warp_ * Shape::kWarpRows + Warp::Row(r);
      if (Warp::Pair() == 0) {
        reinterpret_cast<float2*>(shared_ + Shape::kStates)[row] =
            make_float2(rows_.State(r).neg_max, rows_.State(r).sum);
      }
      float* const to =
          reinterpret_cast<float*>(shared_ + Shape::kOutputs) + row * Shape::kOutputRow;
      if constexpr (kFp8) {
        // Columns of blocks 2 n and 2 n + 1 alternate (fp8_products.cuh).
#pragma unroll
        for (int n = 0; n < kDim / 16; ++n) {
          *reinterpret_cast<float4*>(to + 16 * n + 4 * Warp::Pair()) =
              make_float4(o_.At(r, 4 * n) * v_scale, o_.At(r, 4 * n + 2) * v_scale,
                          o_.At(r, 4 * n + 1) * v_scale, o_.At(r, 4 * n + 3) * v_scale);
        }
      } else {
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          *reinterpret_cast<float2*>(to + 8 * n + 2 * Warp::Pair()) =
              make_float2(o_.At(r, 2 * n), o_.At(r, 2 * n + 1));
        }
      }
    }
  }

 private:
  // The tile of the part that is this warp's i-th, and the stage that it goes to.
  __device__ int TileOf(int i) const { return i * kWarps + warp_; }
  __device__ int Stage(int i) const {
    return Shape::kRing + warp_ * Shape::kRingBytes + i % Shape::kStages * 2 * Shape::kTileBytes;
  }
  __device__ uint32_t LaneAddress(int tile, int row, int chunk) const {
    return device::SharedAddress(shared_) + tile + Place::At(row, chunk) * device::kChunkBytes;
  }

  // The same in a tile of fp8, at the row and chunk that the lane points at.
  __device__ uint32_t Fp8Address(int tile) const {
    using OfTile = device::Swizzle<kDim / 16>;
    return device::SharedAddress(shared_) + tile +
           OfTile::At(OfFp8::PointedRow(Warp::Lane()), OfFp8::PointedChunk(Warp::Lane())) *
               device::kChunkBytes;
  }

  // The page table's entry for key lane % 16 of the i-th tile; beyond the sequence's end, that for its
  // last key.
  __device__ int32_t EntryOfLane(const device::QueryTile& query, int i) const {
    if (TileOf(i) >= tiles_) return 0;
    const int key = TileOf(i) * kKeys + Warp::Lane() % kKeys;
    return a_.pages.EntryOf(query.kv.batch, keys_.first + min(key, keys_.count - 1));
  }

  // Begins to copy K and V of the i-th tile, if there is one, as one group. `entry`: EntryOfLane(i).
  __device__ void CopyTile(const device::QueryTile& query, int i, int32_t entry) const {
    if (TileOf(i) < tiles_) {
      CopyRows(shared_ + Stage(i), query, a_.k, a_.d, TileOf(i), entry);
      CopyRows(shared_ + Stage(i) + Shape::kTileBytes, query, a_.v, a_.dv, TileOf(i), entry);
    }
    device::CopyAsyncCommit();
  }
  __device__ void CopyRows(char* to, const device::QueryTile& query, const device::Rows& rows,
                           int dim, int tile, int32_t entry) const {
    const int first = keys_.first + tile * kKeys;
    const auto key_at = [&](int key, int32_t entry_of_key) {
      return static_cast<const Kv*>(rows.data) + query.KvOffset(rows, a_.pages, entry_of_key, key);
    };
    if (tile < keys_.whole) {
      Copy::CopyWhole(to, key_at(first, entry) + Copy::Offset(rows.token_stride), rows.token_stride,
                      Copy::Thread());
      return;
    }
    const int left = keys_.count - tile * kKeys;
    Copy::Copy(to, left < kKeys ? left : kKeys, dim, rows.whole_chunks,
               [&](int row) { return key_at(first + row, __shfl_sync(0xFFFFFFFF, entry, row)); });
  }

  const device::Arguments& a_;
  const device::Keys keys_;
  const int warp_, tiles_;
  char* const shared_;
  int32_t next_entry_;  // EntryOfLane() of the tile that is copied next
  Warp rows_;
  typename Warp::Output o_;
};

template <class Shape, typename T>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    TensorCoreKernel(const __grid_constant__ device::Arguments a,
                     const __grid_constant__ SplitGrid grid,
                     const __grid_constant__ Workspace workspace,
                     const __grid_constant__ Scales scales) {
  extern __shared__ __align__(128) char shared[];
  const SplitPlace place = PlaceOf(grid, blockIdx.x);
  const device::QueryTile tile = TileOf(a, grid, place, Shape::kWarpRows);
  if (tile.begin >= tile.end) return;
  const device::KvTiles part = PartOf(grid, tile.Tiles(a.mask, kPartKeys), place.part);
  // With one part the block writes O in any case; otherwise nobody reads a part without keys.
  if (part.begin >= part.end && grid.parts.Value() > 1) return;
  const bool streams = a.k.whole_chunks && a.v.whole_chunks && a.d == Shape::kHeadDim &&
                       a.dv == Shape::kHeadDim && a.pages.Hold(Shape::kKeys);
  const device::Keys keys = device::Keys::Of(part, tile.kv.length, Shape::kKeys, streams);
  SplitWarp<Shape, T> warp(a, keys, static_cast<int>(part.Count(Shape::kKeys)), shared);

  using CopyQ = device::TileCopy<T, Shape::kWarpRows, Shape::kHeadDim, Shape::kThreads>;
  CopyQ::Copy(shared + Shape::kQ, static_cast<int>(tile.end - tile.begin), a.d, a.q.whole_chunks,
              [&](int row) {
                return static_cast<const T*>(a.q.data) + tile.Offset(a.q, tile.begin + row);
              });
  device::CopyAsyncCommit();
  warp.Begin(tile);
  if (threadIdx.x < Shape::kWarpRows) {
    const KvRange seen = tile.Visible(a.mask, tile.begin + static_cast<int>(threadIdx.x));
    reinterpret_cast<int2*>(shared + Shape::kVisible)[threadIdx.x] =
        make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
  }
  // The rest of the tile is read again at the end. Until then it would only take registers.
  auto* const kept = reinterpret_cast<device::QueryTile*>(shared + Shape::kTile);
  if (threadIdx.x == 0) *kept = tile;
  device::CopyAsyncWait<Shape::kStages - 1>();  // Q
  __syncthreads();
  const int64_t sequence = grid.heads.Divide(place.unit);
  const float v_scale = scales.OfV(sequence, tile.kv_head);
  warp.Walk(scales.OfK(sequence, tile.kv_head));
  const device::QueryTile at_end = *kept;
  __syncthreads();
  warp.WritePart(v_scale);
  __syncthreads();
  MergeBlock<Shape, T, Shape::kWarps, Shape::kWarpRows>(a, grid, workspace, at_end, shared);
}

template <class Shape, typename T>
cudaError_t LaunchTensorCoresOf(const SplitCall& call) {
  return device::Launch(TensorCoreKernel<Shape, T>, dim3(BlocksOf(call.grid)),
                        dim3(Shape::kThreads), Shape::kSharedBytes, call.stream, call.arguments,
                        call.grid, call.workspace, call.scales);
}

template <int kDim>
cudaError_t LaunchTensorCores(const SplitCall& call) {
  using Shapes = TensorCoreShapes<kDim>;
  switch (call.element) {
    case device::Element::kFloat16:
      return call.fp8_cache ? LaunchTensorCoresOf<typename Shapes::OfFp8, __half>(call)
                            : LaunchTensorCoresOf<typename Shapes::Of16Bits, __half>(call);
    case device::Element::kBFloat16:
      return call.fp8_cache ? LaunchTensorCoresOf<typename Shapes::OfFp8, __nv_bfloat16>(call)
                            : LaunchTensorCoresOf<typename Shapes::Of16Bits, __nv_bfloat16>(call);
    case device::Element::kFloat32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_TENSOR_CORES_CUH_
