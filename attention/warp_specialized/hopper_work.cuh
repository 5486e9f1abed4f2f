// The query tiles of a block, worked out ahead by a warp of their own: the 64-bit arithmetic of a
// tile takes as long as a short tile's products.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/kv_tiles.h"
#include "attention/device/mbarrier.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/tma.cuh"
#include "attention/warp_specialized/hopper_call.h"

namespace attnlab::warp_specialized {

// A query tile as the producer and the consumers need it. Tiles of keys are numbered from 0.
template <typename Shape>
struct Work {
  int2 visible[Shape::kRows];  // the keys [x, y) of the sequence that each row sees
  int64_t o, lse;              // where the tile's first query and head begin, in elements
  device::TileOrigin q, kv;    // of the query tile, and of tile 0 of keys
  int rows;                    // that exist
  int first_key;               // of tile 0, counted from the beginning of the sequence
  int tiles;                   // of keys; kNoMore: there is no more work
  int full_begin, full_end;    // the tiles of keys that need no mask
  int rows_of_v;               // of the last tile; what lies beyond must not be multiplied

  static constexpr int kNoMore = -1;
};

// Tiles of a unit come as pairs: the longest and the shortest that are left. Under a causal mask
// all pairs are equally long. So blocks that take whole pairs are done at about the same time.
__device__ inline device::QueryTile TileOf(const HopperArguments& h, uint32_t index, int rows) {
  const uint32_t per_unit = h.unit.Value(), unit = h.unit.Divide(index);
  const uint32_t place = index - unit * per_unit;
  const uint32_t tile = place % 2 == 0 ? per_unit - 1 - place / 2 : place / 2;
  const uint32_t sequence = h.heads.Divide(unit);
  return device::QueryTileOf(h.a, sequence, static_cast<int32_t>(unit - sequence * h.heads.Value()),
                             static_cast<int32_t>(h.pack.Value()), tile, rows);
}

// The same value, of which the compiler does not know that. What is computed from it again takes no
// registers meanwhile.
__device__ inline uint32_t Again(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Writes tile `index` to `work`. One warp calls this. It has few registers, so it works the tile out
// three times, each time for a part of `work`.
template <typename Shape>
__device__ void Describe(const HopperArguments& h, uint32_t index, Work<Shape>& work) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  {
    const device::QueryTile tile = TileOf(h, index, Shape::kRows);
    for (int row = lane; row < Shape::kRows; row += 32) {
      const KvRange seen = tile.Visible(h.a.mask, tile.begin + row);
      work.visible[row] = {static_cast<int>(seen.begin), static_cast<int>(seen.end)};
    }
  }
  if (lane != 0) return;
  {
    const device::QueryTile tile = TileOf(h, Again(index), Shape::kRows);
    const int64_t query = tile.QueryOf(tile.begin), token = tile.q.begin + query;
    work.rows = static_cast<int>(tile.end - tile.begin);
    work.q = {static_cast<int>(token), tile.first_head / static_cast<int>(h.pack.Value()),
              static_cast<int>(tile.q.batch)};
    work.o = h.a.o.Offset(tile.q.batch, token, tile.first_head);
    work.lse = h.a.lse.Offset(tile.q.batch, token, tile.first_head);
  }
  const device::QueryTile tile = TileOf(h, Again(index), Shape::kRows);
  const device::KvTiles keys = tile.Tiles(h.a.mask, Shape::kKeys);
  const int tiles = static_cast<int>(keys.Count(Shape::kKeys));
  const auto number_of = [&](int64_t key) {
    return static_cast<int>(key - keys.begin) / Shape::kKeys;
  };
  work.kv = {static_cast<int>(tile.kv.begin + keys.begin), tile.kv_head,
             static_cast<int>(tile.kv.batch)};
  work.first_key = static_cast<int>(keys.begin);
  work.tiles = tiles;
  work.full_begin = number_of(keys.full_begin);
  work.full_end = number_of(keys.full_end);
  const int left = static_cast<int>(tile.kv.length - keys.begin) - (tiles - 1) * Shape::kKeys;
  work.rows_of_v = h.rows_beyond && left < Shape::kKeys ? left : Shape::kKeys;
}

template <typename Shape>
__device__ void Schedule(const HopperArguments& h, Work<Shape> (&works)[2], device::Ring<2>& ring) {
  device::Ring<2>::Place at;
  const bool first = threadIdx.x % 32 == 0;
  for (uint32_t begin = blockIdx.x * h.run; begin < h.tiles; begin += gridDim.x * h.run) {
    for (uint32_t index = begin; index < begin + h.run && index < h.tiles; ++index) {
      ring.WaitEmpty(at);
      Describe(h, index, works[at.stage]);
      __syncwarp();
      if (first) ring.Fill(at);
      at.Advance();
    }
  }
  ring.WaitEmpty(at);
  if (!first) return;
  works[at.stage].tiles = Work<Shape>::kNoMore;
  ring.Fill(at);
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_WORK_CUH_
