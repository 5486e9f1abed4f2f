// Which tiles of keys a tile of query rows walks, and which of them need a mask.
//
// Keys that no row of the tile sees are skipped. Most of the others are seen by every row, so their
// tiles need no mask. The tiles at the edges do:
//
//   begin          full_begin                  full_end           end
//     | some rows see   |    all rows see all      |  some rows see |
//
// `begin`, `full_begin` and `full_end` are multiples of the tile size. `end` is not rounded: the
// last tile is cut there, at the sequence's end or where the mask ends.
#ifndef ATTENTION_DEVICE_KV_TILES_H_
#define ATTENTION_DEVICE_KV_TILES_H_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/host_device.h"

namespace attnlab::device {

struct KvTiles {
  int64_t begin = 0, full_begin = 0, full_end = 0, end = 0;  // keys

  // Tiles from begin to end.
  ATTNLAB_HOST_DEVICE constexpr int64_t Count(int64_t tile) const {
    return (end - begin + tile - 1) / tile;
  }

  // Those of keys [from, to), which are multiples of the tile size.
  ATTNLAB_HOST_DEVICE constexpr KvTiles Between(int64_t from, int64_t to) const {
    KvTiles part = *this;
    if (part.begin < from) part.begin = from;
    if (part.end > to) part.end = to;
    if (part.begin >= part.end) return {};
    if (part.full_begin < part.begin) part.full_begin = part.begin;
    if (part.full_end > to) part.full_end = to;
    if (part.full_end <= part.full_begin) part.full_begin = part.full_end = part.begin;
    return part;
  }
};

// The tiles of `tile` keys for rows [row_begin, row_end) of a sequence. Rows from q_len on are
// ignored. There are no tiles if the rows see nothing.
ATTNLAB_HOST_DEVICE constexpr KvTiles KvTilesOf(const Mask& mask, int64_t row_begin,
                                                int64_t row_end, int64_t q_len, int64_t kv_len,
                                                int64_t tile) {
  if (row_end > q_len) row_end = q_len;
  if (row_begin >= row_end) return {};
  const KvRange some = VisibleKvOfRows(mask, row_begin, row_end, q_len, kv_len);
  if (some.begin == some.end) return {};
  KvTiles tiles;
  tiles.begin = some.begin / tile * tile;
  tiles.end = some.end;
  // The keys that all rows see. Ranges slide with the rows, so the last row has the latest begin
  // and the first row the earliest end. A row that sees nothing has an end of 0, or its begin at
  // the end.
  const int64_t all_begin = VisibleKv(mask, row_end - 1, q_len, kv_len).begin;
  const int64_t all_end = VisibleKv(mask, row_begin, q_len, kv_len).end;
  tiles.full_begin = (all_begin + tile - 1) / tile * tile;
  tiles.full_end = all_end / tile * tile;
  if (tiles.full_begin < tiles.begin) tiles.full_begin = tiles.begin;
  if (tiles.full_end <= tiles.full_begin) tiles.full_begin = tiles.full_end = tiles.begin;
  return tiles;
}

// Of 8 keys in a row, a lane of mma.sync's accumulators has two: its i-th key of a tile is key 8 (i / 2)
// + 2 pair + i % 2, where pair is lane % 4. Bit i of the result is 1 if that key is below `end`. A tile
// has `keys` keys, at most 128 and a multiple of 8.
ATTNLAB_HOST_DEVICE constexpr uint32_t KeysBelow(int end, int pair, int keys) {
  int left = end - 2 * pair;
  left = left < 0 ? 0 : left > keys ? keys : left;
  const int count = left / 8 * 2 + (left % 8 < 2 ? left % 8 : 2);
  return count < 32 ? (1u << count) - 1 : ~0u;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_KV_TILES_H_
