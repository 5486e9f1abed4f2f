// The query tiles of a block, worked out ahead by a warp of their own.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/counter.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/hopper/cluster.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/device/hopper/tma.cuh"
#include "attention/warp_specialized/hopper_call.h"

namespace attnlab::warp_specialized {

// Which block of a pair this is.
template <typename Shape>
__device__ int BlockOfPair() {
  return Shape::kCluster > 1 ? static_cast<int>(device::BlockOfCluster()) : 0;
}

// A query tile as the producer and the consumers need it. Tiles of keys are numbered from 0.
struct alignas(16) Work {
  device::TileOrigin q, kv;  // of the query tile, and of tile 0 of keys
  int rows;                  // that exist
  int tiles;                 // of keys; kNoMore: there is no more work
  // Keys, counted from tile 0: there are `keys`, of which query i of the tile sees
  // [sees_begin + i, sees_end + i).
  int keys, sees_begin, sees_end;
  // Of fp8, for the scales: the first query and the first key, counted from the sequence's beginning.
  int sequence, first_query, first_key;
  // Of a tile that blocks share (Shares): the block that this one leaves its part as, which is itself, or whose part
  // it takes. kWhole: neither.
  int16_t leaves, takes;
  bool follows_part;  // the tile before is such a part

  static constexpr int kWhole = -1;
  __device__ bool Leaves() const { return leaves != kWhole; }
  __device__ bool Takes() const { return takes != kWhole; }
  __device__ bool IsPart() const { return Leaves() || Takes(); }

  static constexpr int kNoMore = -1;
};
static_assert(sizeof(Work) == 64);

// Writes tile `index` to `work`. In a pair that is twice as long, and each block has half of its rows. Both
// walk all keys that either sees.
template <typename Shape>
__device__ void Describe(const HopperArguments& h, uint32_t index, Work& work) {
  constexpr int kKeys = Shape::kKeys, kFar = 1 << 30;
  const device::GridPlace place = PlaceOf(h.grid, index);
  const uint32_t sequence = h.grid.heads.Divide(place.unit);
  const uint32_t head = place.unit - sequence * h.grid.heads.Value();
  const device::Span q = h.a.q_sequences[sequence], kv = h.a.kv_sequences[sequence];
  const int pack = static_cast<int>(h.pack.Value());
  const int q_len = static_cast<int>(q.length), kv_len = static_cast<int>(kv.length);
  const int shared_row = static_cast<int>(place.tile) * Shape::kRows * Shape::kCluster,
            shared_rows = max(0, min(Shape::kRows * Shape::kCluster, q_len * pack - shared_row));
  const int before = BlockOfPair<Shape>() * Shape::kRows;  // rows of the block before
  const int rows = max(0, min(Shape::kRows, shared_rows - before));
  const int query = static_cast<int>(h.pack.Divide(shared_row));
  const int last = static_cast<int>(h.pack.Divide(shared_row + max(shared_rows, 1) - 1));
  const int own = Shape::kCluster > 1 ? static_cast<int>(h.pack.Divide(shared_row + before)) - query
                                      : 0;  // the block's first query
  int begin = 0, end = kv_len;              // the keys that some row sees
  int sees_begin = -kFar, sees_end = kFar;
  if (h.a.mask.kind != Mask::Kind::kNone) {
    const int position = query - q_len + kv_len, after = last - query;
    constexpr int64_t kAll = int64_t{1} << 32;  // more keys than there are
    sees_end = static_cast<int>(min(position + min(h.a.mask.right, kAll) + 1, int64_t{kv_len}));
    end = sees_end > kv_len - after ? kv_len : max(0, sees_end + after);
    sees_end = min(sees_end + own, kv_len);
    if (h.a.mask.kind == Mask::Kind::kSlidingWindow) {
      sees_begin = static_cast<int>(max(position - min(h.a.mask.left, kAll), int64_t{-kFar}));
      begin = max(0, min(kv_len, sees_begin));
      sees_begin += own;
    }
  }
  begin = begin / kKeys * kKeys;
  const int tiles = shared_rows > 0 && end > begin ? (end - begin + kKeys - 1) / kKeys : 0;
  work.q = {static_cast<int>(q.begin) + query + own, static_cast<int>(head),
            static_cast<int>(q.batch)};
  work.kv = {static_cast<int>(kv.begin) + begin,
             static_cast<int>(h.a.group.Divide(head * h.pack.Value())), static_cast<int>(kv.batch)};
  work.rows = rows;
  work.tiles = tiles;
  work.keys = kv_len - begin;
  work.sees_begin = sees_begin - begin;
  work.sees_end = max(sees_end, begin - kFar) - begin;
  work.leaves = work.takes = Work::kWhole;
  work.follows_part = false;
  if constexpr (Shape::kFp8) {
    work.sequence = static_cast<int>(sequence);
    work.first_query = query + own;
    work.first_key = begin;
  }
}

// Keeps only the key tiles of this piece.
template <typename Shape>
__device__ void Cut(const Piece& piece, Work& work) {
  const auto block = static_cast<int16_t>(blockIdx.x);
  if (piece.begin > 0) work.leaves = block;
  if (piece.end < work.tiles) work.takes = block - Shape::kCluster;
  work.tiles = piece.end - piece.begin;
  const int before = piece.begin * Shape::kKeys;
  work.kv.token += before;
  work.keys -= before;
  if constexpr (Shape::kFp8) work.first_key += before;
}

// Where a row of a query tile lies in Q, O and LSE.
struct RowPlace {
  int token, head;
};
__device__ inline RowPlace PlaceOf(const HopperArguments& h, const Work& work, int row) {
  const int pack = static_cast<int>(h.pack.Value()), query = static_cast<int>(h.pack.Divide(row));
  return {work.q.token + query, work.q.head * pack + row - query * pack};
}

// Rows that see no key: O is 0, and LSE minus infinity. All lanes of a warp call this.
__device__ inline void StoreEmpty(const HopperArguments& h, const Work& work) {
  const device::Arguments& a = h.a;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = 0; row < work.rows; ++row) {
    const RowPlace at = PlaceOf(h, work, row);
    // Of 16 bits, whichever: zeros are the same.
    auto* const o = static_cast<uint16_t*>(a.o.data) + a.o.Offset(work.q.batch, at.token, at.head);
    for (int i = lane; i < a.dv; i += 32) o[i] = 0;
    if (lane == 0 && a.lse.data != nullptr) {
      static_cast<float*>(a.lse.data)[a.lse.Offset(work.q.batch, at.token, at.head)] = -INFINITY;
    }
  }
}

// The tile that one of `blocks` blocks takes after tile `index` if there is no counter: all take one per
// round, and each moves on by one place. If they did not, a block might have the last tile of its unit in
// every round, with few rows.
__device__ inline uint32_t TileAfter(uint32_t index, uint32_t blocks) {
  return (index + 1) % blocks == 0 ? index + 1 : index + 1 + blocks;
}

// One thread of each block of a pair. The first one has taken tile `index`, and tells the second one. Returns
// it.
template <class Shared>
__device__ uint32_t TellPair(Shared& shared, uint32_t index, uint32_t parity) {
  if (device::BlockOfCluster() == 0) {
    shared.next_read.Wait(parity ^ 1);  // the tile before
    device::StoreAsync(device::InBlock(device::SharedAddress(&shared.next), 1),
                       make_float2(__uint_as_float(index), 0),
                       device::InBlock(device::SharedAddress(shared.next_sent.Word()), 1));
    return index;
  }
  shared.next_sent.ArriveAndExpect(sizeof(shared.next));
  shared.next_sent.Wait(parity);
  index = __float_as_uint(*static_cast<volatile float*>(&shared.next.x));
  shared.next_read.ArriveIn(0);
  return index;
}

// One warp. The producer says through `work_wanted` when it will soon need the next tile. A block that took
// its next tile earlier, at the start of a long one, would keep it from blocks that are done sooner.
template <typename Shape, class Shared>
__device__ void Schedule(const HopperArguments& h, Shared& shared) {
  device::Ring<Shape::kWorks>& ring = shared.work_ring;
  typename device::Ring<Shape::kWorks>::Place at;
  const bool first = threadIdx.x % 32 == 0, counts = h.taken != nullptr;
  const bool takes = first && counts && BlockOfPair<Shape>() == 0;
  const uint32_t tiles = BlocksOf(h.grid), blocks = gridDim.x / Shape::kCluster,
                 block = blockIdx.x / Shape::kCluster;  // or pairs
  // Of the tiles that blocks take beyond their first.
  device::Counter counter(h.taken, /*takes=*/tiles);
  uint32_t parity = 0, told = 0;
  // Of the first lane, its place in what is shared, if anything is.
  Share share = ShareOf(h.shares, block);
  bool follows_part = false;
  const uint32_t whole = share.begin < share.end ? h.shares.whole : tiles;
  const auto next_shared = [&] {
    return share.begin < share.end ? FirstPiece(h.shares, share).query_tile : tiles;
  };
  for (uint32_t index = block < whole ? block : next_shared(); index < tiles;) {
    Work& work = shared.work[at.stage];
    if (first) {
      Describe<Shape>(h, index, work);
      if (index >= whole) {
        const Piece piece = FirstPiece(h.shares, share);
        Cut<Shape>(piece, work);
        share.begin += piece.end - piece.begin;
        work.follows_part = follows_part;
        follows_part = work.IsPart();
      }
    }
    __syncwarp();
    const bool empty = work.tiles == 0;
    if (first && !empty) ring.Fill(at);
    if (takes && index == block) counter.Read(), counter.Begin();
    if (empty) {
      // Consumers need not know. Where O is added, it stays as it is.
      if (!(Shape::kAdds && h.adds)) StoreEmpty(h, work);
    } else {
      at.Advance();
      ring.WaitEmpty(at);
      shared.work_wanted.Wait(parity);
      parity ^= 1;
    }
    __syncwarp();  // all lanes have read `work`, which may be written again now
    // Of the takes, all but the last of each block get a tile; its first tile was not taken.
    if (first && !counts) {
      if (index < whole) index = TileAfter(index, blocks);
      if (index >= whole) index = next_shared();
    }
    if (takes) index = blocks + counter.Take();
    if constexpr (Shape::kCluster > 1) {
      if (first && counts) index = TellPair(shared, index, told);
      told ^= 1;
    }
    index = __shfl_sync(0xFFFFFFFF, index, 0);
  }
  if (!first) return;
  shared.work[at.stage].tiles = Work::kNoMore;
  ring.Fill(at);
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_
