// One query tile of the portable kernel on tensor cores, for 16-bit Q, K and V.
//
//   producers   Produce()   copy K and V, tile after tile, to a ring of stages in shared memory
//   consumers   Consume()   copy their Q, then S = Q Kᵀ, softmax, O += P V (mma.sync); store O
//
// Consumers are those of FlashAttention-2: each warp has 32 rows of the query tile, and S, P and O
// stay in its registers. But they never copy K or V, and never wait for each other: a consumer
// waits only until a stage is full. So they drift apart, and the softmax of one runs beside the
// products of another. (Two warps that share rows wait for each other all the same.)
#ifndef ATTENTION_WARP_SPECIALIZED_PORTABLE_TILE_CUH_
#define ATTENTION_WARP_SPECIALIZED_PORTABLE_TILE_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/fragment_products.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/kv_stream.cuh"
#include "attention/device/output_rows.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"
#include "attention/device/thread_index.cuh"
#include "attention/device/tile_copy.cuh"
#include "attention/device/warp_pair.cuh"
#include "attention/device/warp_rows.cuh"
#include "attention/warp_specialized/portable_ring.cuh"
#include "attention/warp_specialized/portable_shape.h"

namespace attnlab::warp_specialized {

// What a block keeps in shared memory to save registers.
struct PortableKept {
  device::QueryTile tile;
  device::Keys keys;
  int items = 0;  // of the ring
};

template <class Shape>
__device__ PortableKept& KeptIn(char* shared) {
  static_assert(sizeof(PortableKept) <= Shape::kKeptBytes);
  return *reinterpret_cast<PortableKept*>(shared + Shape::kKept);
}

// A producer warp. Of n producers, number `loader` copies every n-th item, from item `loader` on.
template <class Shape, typename T>
__device__ void Produce(const device::Arguments& a, const PortableBlock& block, char* shared,
                        const PortableRing& ring, int loader) {
  using Copy = device::TileCopy<T, Shape::kKeys, Shape::kHeadDim, 32>;
  static_assert(Copy::kBytes == Shape::kStageBytes);
  const PortableKept& kept = KeptIn<Shape>(shared);
  int next = loader;
  for (PortableRing::Place at; at.item() < kept.items; at.Advance(ring)) {
    if (at.item() != next) continue;
    next += block.loaders;
    const bool is_v = at.item() % 2 != 0;
    const int tile = at.item() / 2;
    const device::Rows rows = is_v ? a.v : a.k;
    const T* const first = static_cast<const T*>(rows.data) + kept.tile.KvOffset(rows) +
                           (kept.keys.first + int64_t{tile} * Shape::kKeys) * rows.token_stride;
    char* const to = shared + Shape::StageOf(at.stage());
    ring.WaitEmpty(at);
    if (tile < kept.keys.whole) {
      Copy::CopyWhole(to, first + Copy::Offset(rows.token_stride), rows.token_stride,
                      Copy::Thread());
    } else {
      const int left = kept.keys.count - tile * Shape::kKeys;
      Copy::Copy(to, left < Shape::kKeys ? left : Shape::kKeys, is_v ? a.dv : a.d,
                 rows.whole_chunks, [&](int row) { return first + row * rows.token_stride; });
    }
    ring.Fill(at, rows.whole_chunks);
  }
}

// A consumer warp.
template <class Shape, typename T>
class Consumer {
  static constexpr int kDim = Shape::kHeadDim, kKeys = Shape::kKeys;
  static constexpr bool kPairs = Shape::kPairs;
  static constexpr int kWarpKeys = kKeys / Shape::kSharing, kWarpDim = kDim / Shape::kSharing;
  // Of the rows that warps share, each copies some of Q and stores some of O.
  static constexpr int kCopiedRows = Shape::kWarpRows / Shape::kSharing;

  using Warp = device::WarpRows<Shape::kWarpRows, kWarpKeys, kWarpDim, Shape::kSharing>;
  using Pair = device::WarpPair<Shape, T>;  // only if kPairs
  using Products = device::FragmentProducts<Shape, T>;
  using Place = device::Swizzle<kDim / 8>;

 public:
  __device__ Consumer(const device::Arguments& a, const PortableBlock& block, char* shared,
                      const PortableRing& ring)
      : a_(a), block_(block), shared_(shared), ring_(ring) {}

  // Begins to copy the warp's Q: before the block's first barrier, to lose no time.
  static __device__ void CopyQ(const device::Arguments& a, const PortableBlock& block,
                               const device::QueryTile& tile, char* shared) {
    using Copy = device::TileCopy<T, kCopiedRows, kDim, 32>;
    const int first = Warp::First() + Part() * kCopiedRows;
    const int64_t last = tile.end - 1;
    const int64_t left = tile.end - tile.begin - first;
    const int rows = left < 0 ? 0 : left < kCopiedRows ? static_cast<int>(left) : kCopiedRows;
    Copy::Copy(shared + Shape::QOf(block) + first * Shape::kRowBytes, rows, a.d, a.q.whole_chunks,
               [&](int row) {
                 const int64_t at = tile.begin + first + row;
                 return static_cast<const T*>(a.q.data) + tile.Offset(a.q, at < last ? at : last);
               });
    device::CopyAsyncCommit();
  }

  __device__ void Consume() {
    Begin();
    const float scale_log2 = device::ScaleLog2(a_, Capped());
    PortableRing::Place at;
#pragma unroll 1
    while (at.item() < kept().items) {
      const int j = at.item() / 2;
      const device::Keys& keys = kept().keys;
      const bool masked = keys.Masked(j);
      if (masked && !Warp::SeesSome(Visible(), keys.first + j * kKeys)) {
        Skip(at);
        Skip(at);
        continue;
      }
      typename Products::Scores s;
      ring_.WaitFull(at);
      Products::MultiplyQk(QAddress(), KAddress(at), q_, s);
      Release(at);

      if (Capped()) Warp::Cap(s, a_);
      if (masked) Warp::MaskOut(s, Visible(), keys.first + j * kKeys + FirstKey());
      const bool moved = Rescale(s, scale_log2, keys.First(j));
      typename Products::Probabilities p;
      Products::Weigh(s, scale_log2, warp_, p);
      bool joins = false;
      if constexpr (kPairs) {
        Pair::Send(Exchange(j), p);
        joins = Pair::WaitAndVote(moved);
      }

      ring_.WaitFull(at);
      const uint32_t v_address = VAddress(at);
      Products::AddPv(v_address + FirstKey() * Shape::kRowBytes, p, o_);
      if constexpr (kPairs) {
        Pair::Receive(Exchange(j), p);
        if (joins) Pair::Join(Exchange(j), warp_, p, o_);
        Products::AddPv(v_address + (kWarpKeys - FirstKey()) * Shape::kRowBytes, p, o_);
      }
      Release(at);
    }
    Store();
  }

 private:
  __device__ const PortableKept& kept() const { return KeptIn<Shape>(shared_); }
  __device__ bool Capped() const { return a_.softcap != 0; }

  static __device__ int Lane() { return Warp::Lane(); }
  // This warp's part of its pair's work, and the first key of a tile and first column of O in it.
  static __device__ int Part() {
    if constexpr (kPairs) return Pair::Part();
    return 0;
  }
  static __device__ int FirstKey() { return Part() * kWarpKeys; }
  static __device__ int FirstColumn() { return Part() * kWarpDim; }

  // The keys that each row of the query tile sees.
  __device__ int2* Visible() const {
    return reinterpret_cast<int2*>(shared_ + Shape::VisibleOf(block_));
  }
  // What pairs send alternates between two places, so that one wait per tile is enough.
  __device__ char* Exchange(int j) const {
    return shared_ + Shape::ExchangeOf(block_) + j % 2 * block_.consumers * Shape::kWarpExchange;
  }

  // Where a lane points for ldmatrix. Computed where it is needed; kept, it would take a register.
  __device__ uint32_t LaneAddress(int tile, int row, int chunk) const {
    return device::SharedAddress(shared_) + tile + Place::At(row, chunk) * device::kChunkBytes;
  }
  __device__ uint32_t QAddress() const {
    return LaneAddress(Shape::QOf(block_), Warp::First() + Lane() % 16, Lane() / 16);
  }
  __device__ uint32_t KAddress(const PortableRing::Place& at) const {
    return LaneAddress(Shape::StageOf(at.stage()), FirstKey() + Lane() % 8 + Lane() / 16 * 8,
                       Lane() / 8 % 2);
  }
  __device__ uint32_t VAddress(const PortableRing::Place& at) const {
    return LaneAddress(Shape::StageOf(at.stage()), Lane() % 16, Lane() / 16) +
           FirstColumn() * sizeof(T);
  }

  // Brings what the warp's rows see to shared memory, and waits for Q.
  __device__ void Begin() {
    const device::QueryTile& tile = kept().tile;
    const device::Keys& keys = kept().keys;
    if (Part() == 0 && (keys.full_begin > 0 || 2 * keys.full_end < kept().items)) {
      const int row = Warp::First() + Lane();
      const KvRange seen = tile.Visible(a_.mask, tile.begin + row);
      Visible()[row] = make_int2(static_cast<int>(seen.begin), static_cast<int>(seen.end));
    }
    o_.Clear();
    device::CopyAsyncWait<0>();
    WaitForSharing();
    if constexpr (Shape::kKeptQ > 0) Products::KeepQ(QAddress(), q_);
  }

  // Waits for the lanes of all warps that have these rows.
  static __device__ void WaitForSharing() {
    if constexpr (kPairs) {
      Pair::Wait();
    } else {
      __syncwarp();
    }
  }

  __device__ void Release(PortableRing::Place& at) const {
    ring_.Release(at);
    at.Advance(ring_);
  }
  __device__ void Skip(PortableRing::Place& at) const {
    ring_.WaitFull(at);  // a release counts for the round that it comes in
    Release(at);
  }

  // Returns whether a running maximum has moved without the other warp of the pair knowing.
  __device__ bool Rescale(const typename Products::Scores& s, float scale_log2, bool first) {
    typename Warp::LaneRows max;
    Warp::FindMaxima(s, max);
    if constexpr (kPairs) {
      if (first) Pair::Agree(Exchange(0), max);
    }
    return warp_.Rescale(max, scale_log2, o_) && !first;
  }

  // Writes O and LSE to global memory. O passes through the shared memory that Q had.
  __device__ void Store() {
    if constexpr (kPairs) Pair::AddSums(Exchange(0), warp_);
    warp_.Finish();
    __syncwarp();
    Products::StoreOutput(o_, warp_, QAddress() + FirstColumn() * sizeof(T));
    WaitForSharing();
    if (Part() == 0) warp_.StoreLse(a_, kept().tile);
    const int first = Warp::First() + Part() * kCopiedRows;
    device::OutputRows<T, kDim, kCopiedRows>::Store(
        shared_ + Shape::QOf(block_) + first * Shape::kRowBytes, a_, kept().tile, first);
  }

  const device::Arguments& a_;
  const PortableBlock& block_;
  char* const shared_;
  const PortableRing& ring_;
  Warp warp_;
  typename Warp::Output o_;
  typename Products::KeptQ q_;
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_PORTABLE_TILE_CUH_
