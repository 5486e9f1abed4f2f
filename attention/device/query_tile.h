// A tile of query rows: which queries of which heads it has, and where they lie.
//
// Its rows belong to one query head or, if packed, to all heads that share a KV head. Packing lets
// a short query fill a tile, and K and V are read once for all of its heads. Heads change fastest:
// row r is query r / pack of head first_head + r % pack.
#ifndef ATTENTION_DEVICE_QUERY_TILE_H_
#define ATTENTION_DEVICE_QUERY_TILE_H_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/arguments.h"
#include "attention/device/host_device.h"
#include "attention/device/kv_tiles.h"
#include "attention/device/pages.h"
#include "attention/device/sequences.h"

namespace attnlab::device {

struct QueryTile {
  Span q, kv;  // of the sequence
  int32_t first_head = 0, kv_head = 0;
  int32_t pack = 1;   // query heads whose rows are in the tile
  int64_t begin = 0;  // its first row
  int64_t end = 0;    // one past its last row; at most q.length * pack

  ATTNLAB_HOST_DEVICE int64_t QueryOf(int64_t row) const { return pack == 1 ? row : row / pack; }
  ATTNLAB_HOST_DEVICE int32_t HeadOf(int64_t row) const {
    return pack == 1 ? first_head : first_head + static_cast<int32_t>(row % pack);
  }

  // Elements from the beginning of Q, O or LSE to the row.
  ATTNLAB_HOST_DEVICE int64_t Offset(const Rows& rows, int64_t row) const {
    return rows.Offset(q.batch, q.begin + QueryOf(row), HeadOf(row));
  }
  // Elements from the beginning of K or V, not paged, to key 0 of the sequence.
  ATTNLAB_HOST_DEVICE int64_t KvOffset(const Rows& rows) const {
    return rows.Offset(kv.batch, kv.begin, kv_head);
  }
  // To key `key`, paged or not. `entry`: pages.EntryOf(kv.batch, key).
  ATTNLAB_HOST_DEVICE int64_t KvOffset(const Rows& rows, const Pages& pages, int32_t entry,
                                       int64_t key) const {
    return rows.Offset(pages.PageOf(entry), kv.begin + pages.RowOf(key), kv_head);
  }

  // The keys that the row sees. A `row` beyond the tile sees none.
  ATTNLAB_HOST_DEVICE KvRange Visible(const Mask& mask, int64_t row) const {
    if (row >= end) return {0, 0};
    return VisibleKv(mask, QueryOf(row), q.length, kv.length);
  }

  // The tiles of keys that the query tile walks.
  ATTNLAB_HOST_DEVICE KvTiles Tiles(const Mask& mask, int64_t keys) const {
    if (begin >= end) return {};
    return KvTilesOf(mask, QueryOf(begin), QueryOf(end - 1) + 1, q.length, kv.length, keys);
  }
};

// Tile `index` of a sequence, of `rows` rows of heads [head * pack, (head + 1) * pack). It is empty
// if the sequence has fewer tiles. `pack` is 1 or the number of query heads per KV head.
ATTNLAB_HOST_DEVICE inline QueryTile QueryTileOf(const Arguments& a, int64_t sequence, int32_t head,
                                                 int32_t pack, int64_t index, int64_t rows) {
  QueryTile tile;
  tile.q = a.q_sequences[sequence];
  tile.kv = a.kv_sequences[sequence];
  tile.pack = pack;
  tile.first_head = head * pack;
  tile.kv_head = static_cast<int32_t>(a.group.Divide(static_cast<uint32_t>(tile.first_head)));
  tile.begin = index * rows;
  tile.end = tile.begin + rows;
  if (tile.end > tile.q.length * pack) tile.end = tile.q.length * pack;
  return tile;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_QUERY_TILE_H_
