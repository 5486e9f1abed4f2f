// A part of a query tile on tensor cores (mma.sync): Q has 16 bits; K and V have the same dtype, or
// are fp8_e4m3.
//
// All warps of a block have the same 16 rows, and each has every fourth tile of 16 keys, or as WarpTiles
// says. A warp copies its own tiles, some ahead, so that the only waits are for memory. At the end the
// warps' parts are merged in shared memory, and the blocks' by way of the workspace or in a cluster.
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
#include "attention/device/swizzle.h"
#include "attention/device/tile_copy.cuh"
#include "attention/device/warp_rows.cuh"
#include "attention/split_k/call.h"
#include "attention/split_k/exchange.cuh"
#include "attention/split_k/fp8_products.cuh"
#include "attention/split_k/parts.cuh"
#include "attention/split_k/shape.h"
#include "attention/split_k/split.h"
#include "attention/split_k/tile_rows.h"

namespace attnlab::split_k {

// One warp's tiles of a range of keys. If those are of several quarters (WarpTiles), each quarter's have a state
// of their own, a slice, and are merged in registers.
template <class Shape, typename T, bool kInvariant>
class SplitWarp {
  static constexpr bool kSlices = kInvariant && Shape::kSlices;
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys;
  static constexpr int kApart = 4;  // tiles of a warp
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
  __device__ SplitWarp(const device::Arguments& a, const SplitGrid& grid, const TileRows& rows,
                       const SplitKeys& range, uint32_t range_keys, uint32_t part, int32_t entries,
                       char* shared)
      : a_(a),
        grid_(grid),
        tile_(rows),
        warp_(device::Uniform(static_cast<int>(threadIdx.x) / 32)),
        shared_(shared),
        next_entries_(entries) {
    tiles_.begin = warp_;
    tiles_.end = (range.end - range.begin + kKeys - 1) / kKeys;
    if constexpr (kInvariant) {
      tiles_ = WarpTiles::OfInvariant(grid, range_keys, tiles_.end, part, warp_);
    }
    const bool streams =
        a.k.whole_chunks && a.v.whole_chunks && a.d == kDim && a.dv == kDim && a.pages.Hold(kKeys);
    keys_.first = range.begin;
    keys_.count = rows.kv.length - range.begin;
    keys_.full_begin = (range.full_begin - range.begin) / kKeys;
    keys_.full_end = (range.full_end - range.begin) / kKeys;
    keys_.whole = streams ? min((range.end - range.begin) / kKeys, tiles_.end) : 0;
    k_chunk_ = LaneChunk(a.k), v_chunk_ = LaneChunk(a.v);
  }

  // `k_scale`, `v_scale`: of K and V, if they are fp8.
  __device__ void Walk(float k_scale, float v_scale) {
    std::conditional_t<kFp8, typename OfFp8::KeptQ, typename Products::KeptQ> q;
    [[maybe_unused]] typename Warp::LaneRows factors;
    const bool capped = a_.softcap != 0;
    const float scale_log2 = device::ScaleLog2(a_, capped);
    int tile = tiles_.begin, copied = tile;
    [[maybe_unused]] const bool slices = kSlices && tiles_.slice > 0;
    [[maybe_unused]] int slice_end = tiles_.slice;
    next_run_ = tile;
    if (!grid_.prefetches) next_entries_ = EntriesFrom(tile);
    [[maybe_unused]] Slices before;
    if constexpr (kSlices) before.o.Clear();
      // The first copies are made by the same code as all others: a kernel that lives for microseconds waits
      // for its code, too.
#pragma unroll 1
    for (int i = 1 - Shape::kStages; i <= 0 || tile < tiles_.end; ++i) {
      if (i >= 0) device::CopyAsyncWait<Shape::kStages - 2>();
      __syncwarp();  // all lanes' copies of this tile are there, and all are done with the last one
      if (i == 0) {
        o_.Clear();
        if (tile >= tiles_.end) break;
        const int at = Stage(Shape::kStages - 1);
        if constexpr (kFp8) {
          OfFp8::template KeepQ<T>(shared_ + at, tile_.Count(), Warp::Quad(), Warp::Pair(), q,
                                   factors);
#pragma unroll
          for (float& factor : factors) factor *= k_scale;
        } else {
          Products::KeepQ(LaneAddress(at, Warp::Lane() % 16, Warp::Lane() / 16), q);
        }
        __syncwarp();  // all lanes have Q; the next copies overwrite it
      }
      CopyTile(copied, Stage(i + Shape::kStages - 1));
      copied += kApart;
      if (i == 1 - Shape::kStages) CopyQ(shared_ + Stage(Shape::kStages - 1));
      device::CopyAsyncCommit();
      if (i < 0) continue;
      const int k = Stage(i), v = k + Shape::kTileBytes, lane = Warp::Lane();
      typename Products::Scores s;
      if constexpr (kFp8) {
        OfFp8::MultiplyQk(Fp8Address(k), q, s);
#pragma unroll
        for (int r = 0; r < Warp::kLaneRows; ++r) {
#pragma unroll
          for (int x = 0; x < 4; ++x) s.At(r, x) *= factors[r];
        }
      } else {
        Products::MultiplyQk(0, LaneAddress(k, lane % 8 + lane / 16 * 8, lane / 8 % 2), q, s);
      }
      if (capped) Warp::Cap(s, a_);
      if (keys_.Masked(tile)) MaskOut(s, keys_.first + tile * kKeys);
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
      if constexpr (kSlices) {
        if (slices && tile + kApart >= min(slice_end, tiles_.end)) {
          Finish(v_scale);
          before.Add(rows_, o_);
          o_.Clear(), rows_ = Warp();
          slice_end += tiles_.slice;
        }
      }
      tile += kApart;
    }
    device::CopyAsyncWait<0>();
    if constexpr (kSlices) {
      if (slices) {
        o_ = before.o;
#pragma unroll
        for (int r = 0; r < Warp::kLaneRows; ++r) rows_.State(r) = before.rows[r];
        return;
      }
    }
    Finish(v_scale);
  }

  // Writes this warp's part to where its ring was.
  __device__ void WritePart() const {
    __syncwarp();
    ForEachRow([&](int r, int row) {
      float* const to = SharedRow<Shape>(shared_, warp_, row);
      if (Warp::Pair() == 0) *reinterpret_cast<float2*>(to + kDim) = StateOf(r);
      ForEachColumn(r, [&](int column, const auto& x) {
        *reinterpret_cast<std::decay_t<decltype(x)>*>(to + column) = x;
      });
    });
  }

 private:
  // The slices so far.
  struct Slices {
    typename Warp::Output o;
    device::OnlineSoftmax rows[Warp::kLaneRows];

    __device__ void Add(const Warp& slice_rows, const typename Warp::Output& slice_o) {
#pragma unroll
      for (int r = 0; r < Warp::kLaneRows; ++r) {
        const AddedState both(rows[r], slice_rows.State(r));
        rows[r] = both.softmax;
#pragma unroll
        for (int i = 0; i < kDim / 4; ++i) o.At(r, i) = both.Add(o.At(r, i), slice_o.At(r, i));
      }
    }
  };

  // After the last key of a state.
  __device__ void Finish(float v_scale) {
    rows_.Finish();
    if constexpr (kFp8) {
      typename Warp::LaneRows scales;
#pragma unroll
      for (int r = 0; r < Warp::kLaneRows; ++r) scales[r] = v_scale;
      Warp::Multiply(o_, scales);
    }
  }
  // Calls visit(r, row) for the lane's rows that exist.
  template <typename Visit>
  __device__ void ForEachRow(const Visit& visit) const {
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) {
      if (Warp::Row(r) < tile_.Count()) visit(r, Warp::Row(r));
    }
  }
  __device__ float2 StateOf(int r) const {
    return make_float2(rows_.State(r).neg_max, rows_.State(r).sum);
  }
  // Calls visit(column, numbers) for the lane's numbers of O: two side by side, or four if V is fp8,
  // because there columns of blocks 2 n and 2 n + 1 alternate (fp8_products.cuh).
  template <typename Visit>
  __device__ void ForEachColumn(int r, const Visit& visit) const {
    if constexpr (kFp8) {
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        visit(16 * n + 4 * Warp::Pair(), make_float4(o_.At(r, 4 * n), o_.At(r, 4 * n + 2),
                                                     o_.At(r, 4 * n + 1), o_.At(r, 4 * n + 3)));
      }
    } else {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        visit(8 * n + 2 * Warp::Pair(), make_float2(o_.At(r, 2 * n), o_.At(r, 2 * n + 1)));
      }
    }
  }

  // Where this warp's i-th tile goes.
  __device__ int Stage(int i) const {
    return warp_ * Shape::kRingBytes + i % Shape::kStages * 2 * Shape::kTileBytes;
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

  // What the rows see is worked out for each tile that needs it: most parts have none.
  __device__ void MaskOut(typename Products::Scores& s, int first_key) const {
#pragma unroll
    for (int r = 0; r < Warp::kLaneRows; ++r) {
      const KvRange seen = tile_.Visible(grid_, a_.mask, tile_.begin + Warp::Row(r));
      Warp::MaskOut(s, r, static_cast<int>(seen.begin) - first_key,
                    static_cast<int>(seen.end) - first_key);
    }
  }

  // The page table's entry for the first key of the lane's tile among a run, the warp's 32 tiles from this
  // one on.
  __device__ int32_t EntriesFrom(int run) const {
    const int tile = run + Warp::Lane() * kApart;
    if (tile >= tiles_.end) return 0;
    return a_.pages.EntryOf(tile_.kv.batch, keys_.first + tile * kKeys);
  }

  // Begins to copy K and V of a tile, if there is one. Called for one tile after the other.
  __device__ void CopyTile(int tile, int stage) {
    if (tile == next_run_) {
      run_ = tile, entries_ = next_entries_;
      next_run_ = tile + 32 * kApart;
      next_entries_ = EntriesFrom(next_run_);  // used a run later, when it has arrived
    }
    const int first = keys_.first + tile * kKeys;
    char* const to = shared_ + stage;
    if (tile < keys_.whole) {
      const int32_t page =
          a_.pages.PageOf(__shfl_sync(0xFFFFFFFF, entries_, (tile - run_) / kApart));
      const int32_t row = a_.pages.RowOf(first);
      CopyWhole(to, a_.k, k_chunk_, row, page);
      CopyWhole(to + Shape::kTileBytes, a_.v, v_chunk_, row, page);
    } else if (tile < tiles_.end) {
      // One after the other, so that the code is short.
#pragma unroll 1
      for (int x = 0; x < 2; ++x) {
        const device::Rows rows = x == 1 ? a_.v : a_.k;
        CopyRows<Kv>(to + x * Shape::kTileBytes, keys_.count - tile * kKeys, x == 1 ? a_.dv : a_.d,
                     rows.whole_chunks, [&](int row) {
                       const int key = first + row;
                       const int32_t entry = a_.pages.EntryOf(tile_.kv.batch, key);
                       return static_cast<const Kv*>(rows.data) +
                              tile_.KvOffset(rows, a_.pages, entry, key);
                     });
      }
    }
  }
  // Begins to copy Q.
  __device__ void CopyQ(char* to) const {
    CopyRows<T>(to, tile_.Count(), a_.d, a_.q.whole_chunks, [&](int row) {
      return static_cast<const T*>(a_.q.data) + tile_.Offset(grid_, a_.q, tile_.begin + row);
    });
  }

  // Copies 16 rows, those from `rows` on as zeros. Short code, because it runs once or twice; rows that
  // are in no whole chunks are slow.
  template <typename X, typename RowAt>
  static __device__ void CopyRows(char* to, int rows, int dim, bool whole_chunks,
                                  const RowAt& row_at) {
    constexpr int kChunk = device::kChunkBytes / static_cast<int>(sizeof(X));
    constexpr int kRowChunks = kDim / kChunk;
    using OfRow = device::Swizzle<kRowChunks>;
    constexpr int kStep = 32 / OfRow::kGroup;  // rows at a time
    const int lane_chunk = Warp::Lane() % OfRow::kGroup;
#pragma unroll 1
    for (int row = Warp::Lane() / OfRow::kGroup; row < 16; row += kStep) {
      const X* const from = row < rows ? row_at(row) : nullptr;
      if (row >= rows || whole_chunks) {
#pragma unroll
        for (int j = 0; j < kRowChunks / OfRow::kGroup; ++j) {
          const int chunk = lane_chunk + j * OfRow::kGroup, column = chunk * kChunk;
          char* const place = to + OfRow::At(row, chunk) * device::kChunkBytes;
          if (row < rows && column < dim) {
            device::CopyAsync<16>(place, from + column);
          } else {
            *reinterpret_cast<uint4*>(place) = make_uint4(0, 0, 0, 0);
          }
        }
        continue;
      }
#pragma unroll 1
      for (int x = lane_chunk; x < kDim; x += OfRow::kGroup) {
        X* const chunk =
            reinterpret_cast<X*>(to + OfRow::At(row, x / kChunk) * device::kChunkBytes);
        chunk[x % kChunk] = x < dim ? from[x] : X(0.0f);
      }
    }
  }
  // A lane's first chunk of a whole tile is here, plus what depends on the tile.
  __device__ const Kv* LaneChunk(const device::Rows& rows) const {
    const int lane = Warp::Lane();
    return static_cast<const Kv*>(rows.data) + Copy::Chunk(lane) * Copy::kChunkElements +
           Times(rows.head_stride, tile_.kv_head) +
           Times(rows.token_stride, tile_.kv.begin + Copy::Row(lane));
  }
  __device__ void CopyWhole(char* to, const device::Rows& rows, const Kv* lanes, uint32_t row,
                            uint32_t page) const {
    Copy::CopyWhole(to, lanes + Times(rows.batch_stride, page) + Times(rows.token_stride, row),
                    rows.token_stride, Warp::Lane());
  }
  // Without a sign, a product takes half as many instructions.
  static __device__ int64_t Times(int64_t stride, uint32_t count) {
    return static_cast<int64_t>(static_cast<uint64_t>(stride) * count);
  }

  const device::Arguments& a_;
  const SplitGrid& grid_;
  const TileRows tile_;
  device::Keys keys_;
  const int warp_;
  WarpTiles tiles_;
  char* const shared_;
  const Kv *k_chunk_, *v_chunk_;    // LaneChunk() of K and V
  int run_, next_run_;              // of the tile that is copied next, and the one after it
  int32_t entries_, next_entries_;  // EntriesFrom() of both
  Warp rows_;
  typename Warp::Output o_;
};

// Asks for the first keys of a part before the block knows anything else of it. They come to L2 while it
// finds out. Each thread asks for one key. Returns SplitWarp::EntriesFrom() of the warp's first tile.
template <class Shape>
__device__ int32_t PrefetchKeys(const device::Arguments& a, const SplitGrid& grid,
                                const SplitPlace& place) {
  constexpr int kElement = Shape::kFp8 ? 1 : 2;
  if (!grid.prefetches) return 0;
  const auto all = static_cast<uint32_t>(a.kv_sequences.longest);
  const uint32_t keys = RangeKeys(grid, all);
  const uint32_t begin = (place.part >> grid.share_shift) * keys;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t first = warp, key = begin + threadIdx.x;  // first: WarpTiles::begin
  if (grid.share_shift != 0) {
    first = warp * (keys / 4 / Shape::kKeys) + place.part % 4;
    key = begin + (first + lane / 16 * 4) * Shape::kKeys + lane % 16;
  }
  auto entries = static_cast<int32_t>(place.sequence);  // if K and V are not paged
  if (a.pages.table != nullptr) {
    const uint32_t tile_key = begin + (first + 4 * lane) * Shape::kKeys;
    entries = tile_key < all ? a.pages.EntryOf(place.sequence, tile_key) : 0;
  }
  if (key >= all) return entries;
  const int32_t page = a.pages.PageOf(a.pages.EntryOf(place.sequence, key));
  const auto prefetch = [&](const device::Rows& rows, int dim) {
    const int64_t at = rows.Offset(page, a.pages.RowOf(key), place.head) * kElement;
    // Unrolled, the code is shorter, and the block waits for code, too.
#pragma unroll
    for (int x = 0; x < Shape::kHeadDim * kElement; x += 128) {
      if (x < dim * kElement) device::PrefetchLine(static_cast<const char*>(rows.data) + at + x);
    }
  };
  prefetch(a.k, a.d);
  prefetch(a.v, a.dv);
  return entries;
}

// What a kernel is compiled for. A block waits for its code, too, and the less it has to know, the less code it has.
enum class Case {
  kAny,        // but invariant parts
  kInvariant,  // these, and all else
  kPlain,      // clusters; equally long sequences, no mask, no softcap: each part has keys
};

template <class Shape, typename T, Case kCase>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    TensorCoreKernel(const __grid_constant__ device::Arguments of_call,
                     const __grid_constant__ SplitGrid of_launch,
                     const __grid_constant__ Workspace workspace,
                     const __grid_constant__ Scales scales) {
  extern __shared__ __align__(128) char shared[];
  constexpr bool kInvariant = kCase == Case::kInvariant, kPlain = kCase == Case::kPlain;
  if constexpr (kPlain && !kHasClusters) return;
  SplitGrid grid = of_launch;
  device::Arguments a = of_call;
  // Known when compiled.
  if constexpr (!kInvariant) grid.invariant = 0, grid.share_shift = 0;
  if constexpr (kPlain) {
    grid.prefetches = true;
    a.mask.kind = Mask::Kind::kNone, a.softcap = 0;
    a.q_sequences.offsets = nullptr, a.q_sequences.lengths = nullptr;
    a.kv_sequences.offsets = nullptr, a.kv_sequences.lengths = nullptr;
  }
  const SplitPlace place = PlaceOf(grid, blockIdx.x);
  const int32_t entries = PrefetchKeys<Shape>(a, grid, place);
  const TileRows tile = RowsOf(a, grid, place, Shape::kWarpRows);
  const SplitKeys keys = tile.Keys(grid, a.mask);
  const BlockPart block = {tile, place.part, kPlain ? grid.parts.Value() : PartsOf(grid, keys)};
  // The same for all blocks of a cluster, which have the same tile.
  const bool in_cluster = kPlain || (kHasClusters && grid.cluster_shift > 0 && block.parts > 1);
  if (!in_cluster && !block.HasWork()) return;
  const Exchange<Shape> exchange(grid, block, shared);
  if constexpr (kHasClusters) {
    if (in_cluster) exchange.Begin();
  }
  const uint32_t range_keys = RangeKeys(grid, static_cast<uint32_t>(keys.end - keys.begin));
  const SplitKeys range = RangeOf(grid, keys, place.part);
  SplitWarp<Shape, T, kInvariant> warp(a, grid, tile, range, range_keys, place.part, entries,
                                       shared);
  warp.Walk(scales.OfK(place.sequence, place.head), scales.OfV(place.sequence, place.head));
  device::Counter counter = block.CounterOf(grid, workspace);
  if (threadIdx.x == 0 && block.parts > 1 && !in_cluster) counter.Read();
  warp.WritePart();
  __syncthreads();
  if constexpr (kHasClusters) {
    if (in_cluster) {
      exchange.WaitForBlocks();
      if (kPlain || block.HasKeys()) exchange.SendPart();
      return exchange.template Merge<T>(a);
    }
  }
  MergeBlock<Shape, T, Shape::kWarps>(a, grid, workspace, block, counter, shared);
}

template <class Shape, typename T>
cudaError_t LaunchTensorCoresOf(const SplitCall& call) {
  // The kernel for invariant parts does for all. Without slices it is hardly slower than another one would be.
  auto* kernel = TensorCoreKernel<Shape, T, Case::kInvariant>;
  if constexpr (Shape::kSlices) {
    const SplitGrid& grid = call.grid;
    const bool plain = grid.prefetches && call.arguments.mask.kind == Mask::Kind::kNone &&
                       call.arguments.softcap == 0 && grid.cluster_shift > 0;
    if (grid.invariant == 0) {
      kernel =
          plain ? TensorCoreKernel<Shape, T, Case::kPlain> : TensorCoreKernel<Shape, T, Case::kAny>;
    }
  }
  return device::Launch(kernel,
                        call.Record(Shape::kThreads, Shape::kSharedBytes, Shape::kExchangeBytes),
                        call.arguments, call.grid, call.workspace, call.scales);
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
