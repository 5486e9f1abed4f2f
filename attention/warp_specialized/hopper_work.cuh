// The query tiles of a block, worked out ahead by a warp of their own.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/counter.cuh"
#include "attention/device/cp_async.cuh"
#include "attention/device/hopper/mbarrier.cuh"
#include "attention/device/hopper/tma.cuh"
#include "attention/warp_specialized/hopper_call.h"

namespace attnlab::warp_specialized {

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

  static constexpr int kNoMore = -1;
};
static_assert(sizeof(Work) == 64);

// Writes tile `index` to `work`.
template <typename Shape>
__device__ void Describe(const HopperArguments& h, uint32_t index, Work& work) {
  constexpr int kKeys = Shape::kKeys, kFar = 1 << 30;
  const device::GridPlace place = PlaceOf(h.grid, index);
  const uint32_t sequence = h.grid.heads.Divide(place.unit);
  const uint32_t head = place.unit - sequence * h.grid.heads.Value();
  const device::Span q = h.a.q_sequences[sequence], kv = h.a.kv_sequences[sequence];
  const int pack = static_cast<int>(h.pack.Value());
  const int q_len = static_cast<int>(q.length), kv_len = static_cast<int>(kv.length);
  const int first_row = static_cast<int>(place.tile) * Shape::kRows;
  const int rows = max(0, min(Shape::kRows, q_len * pack - first_row));
  const int query = static_cast<int>(h.pack.Divide(first_row));
  const int last = static_cast<int>(h.pack.Divide(first_row + max(rows, 1) - 1));
  int begin = 0, end = kv_len;  // the keys that some row sees
  int sees_begin = -kFar, sees_end = kFar;
  if (h.a.mask.kind != Mask::Kind::kNone) {
    const int position = query - q_len + kv_len, after = last - query;
    constexpr int64_t kAll = int64_t{1} << 32;  // more keys than there are
    sees_end = static_cast<int>(min(position + min(h.a.mask.right, kAll) + 1, int64_t{kv_len}));
    end = sees_end > kv_len - after ? kv_len : max(0, sees_end + after);
    if (h.a.mask.kind == Mask::Kind::kSlidingWindow) {
      sees_begin = static_cast<int>(max(position - min(h.a.mask.left, kAll), int64_t{-kFar}));
      begin = max(0, min(kv_len, sees_begin));
    }
  }
  begin = begin / kKeys * kKeys;
  const int tiles = rows > 0 && end > begin ? (end - begin + kKeys - 1) / kKeys : 0;
  work.q = {static_cast<int>(q.begin) + query, static_cast<int>(head), static_cast<int>(q.batch)};
  work.kv = {static_cast<int>(kv.begin) + begin,
             static_cast<int>(h.a.group.Divide(head * h.pack.Value())), static_cast<int>(kv.batch)};
  work.rows = rows;
  work.tiles = tiles;
  work.keys = kv_len - begin;
  work.sees_begin = sees_begin - begin;
  work.sees_end = max(sees_end, begin - kFar) - begin;
  if constexpr (Shape::kFp8) {
    work.sequence = static_cast<int>(sequence);
    work.first_query = query;
    work.first_key = begin;
  }
}

// Rows that see no key: O is 0, and LSE minus infinity. All lanes of a warp call this.
__device__ inline void StoreEmpty(const HopperArguments& h, const Work& work) {
  const device::Arguments& a = h.a;
  const int lane = static_cast<int>(threadIdx.x) % 32, pack = static_cast<int>(h.pack.Value());
  for (int row = 0; row < work.rows; ++row) {
    const int query = static_cast<int>(h.pack.Divide(row)),
              head = work.q.head * pack + row - query * pack;
    // Of 16 bits, whichever: zeros are the same.
    auto* const o =
        static_cast<uint16_t*>(a.o.data) + a.o.Offset(work.q.batch, work.q.token + query, head);
    for (int i = lane; i < a.dv; i += 32) o[i] = 0;
    if (lane == 0 && a.lse.data != nullptr) {
      static_cast<float*>(a.lse.data)[a.lse.Offset(work.q.batch, work.q.token + query, head)] =
          -INFINITY;
    }
  }
}

// So that it comes to L2 in time: O and LSE of other keys, to which a tile will be added. All lanes of a warp call this.
__device__ inline void PrefetchEarlier(const HopperArguments& h, const Work& work) {
  const device::Arguments& a = h.a;
  const int pack = static_cast<int>(h.pack.Value());
  for (int row = static_cast<int>(threadIdx.x) % 32; row < work.rows; row += 32) {
    const int query = static_cast<int>(h.pack.Divide(row)),
              head = work.q.head * pack + row - query * pack;
    const auto* const o =
        static_cast<uint16_t*>(a.o.data) + a.o.Offset(work.q.batch, work.q.token + query, head);
    for (int i = 0; i < a.dv; i += 64) device::PrefetchLine(o + i);
    device::PrefetchLine(static_cast<float*>(a.lse.data) +
                         a.lse.Offset(work.q.batch, work.q.token + query, head));
  }
}

// The tile that a block takes after tile `index` if there is no counter: all take one per round, and
// each moves on by one place. If they did not, a block might have the last tile of its unit in every
// round, with few rows.
__device__ inline uint32_t TileAfter(uint32_t index) {
  return (index + 1) % gridDim.x == 0 ? index + 1 : index + 1 + gridDim.x;
}

// One warp. The producer says through `wanted` when it will soon need the next tile. A block that took
// its next tile earlier, at the start of a long one, would keep it from blocks that are done sooner.
template <typename Shape>
__device__ void Schedule(const HopperArguments& h, Work (&works)[Shape::kWorks],
                         device::Ring<Shape::kWorks>& ring, device::Barrier& wanted) {
  typename device::Ring<Shape::kWorks>::Place at;
  const bool first = threadIdx.x % 32 == 0, counts = h.taken != nullptr;
  const uint32_t tiles = BlocksOf(h.grid);
  // Of the tiles that blocks take beyond their first.
  device::Counter counter(h.taken, /*takes=*/tiles);
  uint32_t parity = 0;
  for (uint32_t index = blockIdx.x; index < tiles;) {
    Work& work = works[at.stage];
    if (first) Describe<Shape>(h, index, work);
    __syncwarp();
    const bool empty = work.tiles == 0;
    if (first && !empty) ring.Fill(at);
    if (first && counts && index == blockIdx.x) counter.Read(), counter.Begin();
    if (empty) {
      // Consumers need not know. Where O is added, it stays as it is.
      if (!(Shape::kAdds && h.adds)) StoreEmpty(h, work);
    } else {
      if (Shape::kAdds && h.adds) PrefetchEarlier(h, work);
      at.Advance();
      ring.WaitEmpty(at);
      wanted.Wait(parity);
      parity ^= 1;
    }
    __syncwarp();  // all lanes have read `work`, which may be written again now
    // Of the takes, all but the last of each block get a tile; its first tile was not taken.
    if (first) index = counts ? gridDim.x + counter.Take() : TileAfter(index);
    index = __shfl_sync(0xFFFFFFFF, index, 0);
  }
  if (!first) return;
  works[at.stage].tiles = Work::kNoMore;
  ring.Fill(at);
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_
