// A part of a query tile on tensor cores (mma.sync): Q has 16 bits; K and V have the same dtype, or
// are fp8_e4m3.
//
// All warps of a block have the same 16 rows, and each has every fourth tile of 16 keys. A warp
// copies its own tiles, some ahead, so that the only waits are for memory. At the end the warps'
// parts are merged in shared memory.
//
// A warp reads the page table 32 of its tiles ahead of its copies: each lane has the entry of one. A
// tile within one page is copied like one of K and V that are not paged.
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
  static_assert(sizeof(BlockPart) <= Shape::kRing - Shape::kTile);
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

  // After a barrier: what the rows see and the block's part are in shared memory, and copies of Q are
  // the last group. `k_scale`: of K, if it is fp8.
  __device__ void Walk(float k_scale) {
    const auto& query = reinterpret_cast<const BlockPart*>(shared_ + Shape::kTile)->tile;
    std::conditional_t<kFp8, typename OfFp8::KeptQ, typename Products::KeptQ> q;
    [[maybe_unused]] float factors[2];
    o_.Clear();
    const bool capped = a_.softcap != 0;
    const float scale_log2 = device::ScaleLog2(a_, capped);
    const auto* const visible = reinterpret_cast<const int2*>(shared_ + Shape::kVisible);
    next_entries_ = EntriesFrom(query, 0);
    // The first copies are made by the same code as all others: a kernel that lives for microseconds
    // waits for its code, too.
#pragma unroll 1
    for (int i = 1 - Shape::kStages; i <= 0 || TileOf(i) < tiles_; ++i) {
      if (i == 0) {
        device::CopyAsyncWait<Shape::kStages - 1>();
        __syncthreads();  // Q is there
        if constexpr (kFp8) {
          OfFp8::template KeepQ<T>(shared_ + Shape::kQ, Warp::Quad(), Warp::Pair(), q, factors);
          factors[0] *= k_scale, factors[1] *= k_scale;
        } else {
          Products::KeepQ(LaneAddress(Shape::kQ, Warp::Lane() % 16, Warp::Lane() / 16), q);
        }
        __syncthreads();  // all warps have Q; the first one's next copies overwrite it
        if (TileOf(0) >= tiles_) break;
      }
      if (i >= 0) device::CopyAsyncWait<Shape::kStages - 2>();
      __syncwarp();  // all lanes' copies of this tile are there, and all are done with the last one
      CopyTile(query, i + Shape::kStages - 1);
      if (i < 0) continue;
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

  // The page table's entry for the first key of the lane's tile among the 32 tiles from the i-th on.
  __device__ int32_t EntriesFrom(const device::QueryTile& query, int i) const {
    const int tile = TileOf(i + Warp::Lane());
    if (tile >= tiles_) return 0;
    return a_.pages.EntryOf(query.kv.batch, keys_.first + tile * kKeys);
  }

  // Begins to copy K and V of the i-th tile, if there is one, as one group. Called for one tile after
  // the other.
  __device__ void CopyTile(const device::QueryTile& query, int i) {
    if (i % 32 == 0) {
      entries_ = next_entries_;
      next_entries_ = EntriesFrom(query, i + 32);  // used 32 tiles later, when it has arrived
    }
    const int tile = TileOf(i), first = keys_.first + tile * kKeys;
    if (tile < keys_.whole) {
      const int32_t entry = __shfl_sync(0xFFFFFFFF, entries_, i % 32);
      CopyWhole(shared_ + Stage(i), query, a_.k, first, entry);
      CopyWhole(shared_ + Stage(i) + Shape::kTileBytes, query, a_.v, first, entry);
    } else if (tile < tiles_) {
      // One after the other, so that the code is short.
#pragma unroll 1
      for (int x = 0; x < 2; ++x) {
        const bool is_v = x == 1;
        const device::Rows rows = is_v ? a_.v : a_.k;
        const int left = min(keys_.count - tile * kKeys, kKeys);
        char* const to = shared_ + Stage(i) + (is_v ? Shape::kTileBytes : 0);
        const int dim = is_v ? a_.dv : a_.d;
        const auto row_at = [&](int row) {
          const int key = first + row;
          return KeyAt(query, rows, key, a_.pages.EntryOf(query.kv.batch, key));
        };
        if (rows.whole_chunks) {
          Copy::Copy(to, left, dim, /*whole_chunks=*/true, row_at);
        } else {
          CopyElements(to, left, dim, row_at);
        }
      }
    }
    device::CopyAsyncCommit();
  }
  // Rows in any alignment. Rare, and slow: its code must not be in the way of the rest.
  template <typename RowAt>
  static __device__ void CopyElements(char* to, int rows, int dim, const RowAt& row_at) {
    constexpr int kChunk = Copy::kChunkElements;
#pragma unroll 1
    for (int i = Warp::Lane(); i < kKeys * kDim; i += 32) {
      const int row = i / kDim, column = i % kDim;
      const bool exists = row < rows && column < dim;
      reinterpret_cast<Kv*>(to + Copy::Place::At(row, column / kChunk) *
                                     device::kChunkBytes)[column % kChunk] =
          exists ? row_at(row)[column] : Kv(0.0f);
    }
  }
  __device__ const Kv* KeyAt(const device::QueryTile& query, const device::Rows& rows, int key,
                             int32_t entry) const {
    return static_cast<const Kv*>(rows.data) + query.KvOffset(rows, a_.pages, entry, key);
  }
  __device__ void CopyWhole(char* to, const device::QueryTile& query, const device::Rows& rows,
                            int first, int32_t entry) const {
    Copy::CopyWhole(to, KeyAt(query, rows, first, entry) + Copy::Offset(rows.token_stride),
                    rows.token_stride, Copy::Thread());
  }

  const device::Arguments& a_;
  const device::Keys keys_;
  const int warp_, tiles_;
  char* const shared_;
  int32_t entries_, next_entries_;  // EntriesFrom() of the tile that is copied next, and 32 later
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
  const device::KvTiles tiles = tile.Tiles(a.mask, kPartKeys);
  const device::KvTiles part = PartOf(grid, tiles, place.part);
  // Without any key the first block writes O.
  if (part.begin >= part.end && place.part > 0) return;
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
  if (threadIdx.x < Shape::kWarpRows) {
    const KvRange seen = tile.Visible(a.mask, tile.begin + static_cast<int>(threadIdx.x));
    reinterpret_cast<int2*>(shared + Shape::kVisible)[threadIdx.x] =
        make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
  }
  // Read again at the end. Until then it would only take registers.
  auto* const kept = reinterpret_cast<BlockPart*>(shared + Shape::kTile);
  if (threadIdx.x == 0) *kept = {tile, place, PartsOf(grid, tiles)};
  __syncthreads();
  const int64_t sequence = grid.heads.Divide(place.unit);
  const float v_scale = scales.OfV(sequence, tile.kv_head);
  warp.Walk(scales.OfK(sequence, tile.kv_head));
  const BlockPart block = *kept;
  device::Counter counter = block.CounterOf(grid, workspace);
  if (threadIdx.x == 0 && block.parts > 1) counter.Read();
  __syncthreads();
  warp.WritePart(v_scale);
  __syncthreads();
  MergeBlock<Shape, T, Shape::kWarps, Shape::kWarpRows>(a, grid, workspace, block, counter, shared);
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
