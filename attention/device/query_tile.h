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
  Divisor pack;             // query heads whose rows are in the tile
  int64_t first_query = 0;  // of the tile's first row
  int64_t begin = 0;        // its first row, or that of a part of it
  int64_t end = 0;          // one past its last row; at most q.length * pack

  // Of a row of the tile.
  ATTNLAB_HOST_DEVICE int64_t QueryOf(int64_t row) const {
    return pack.Value() == 1 ? row : first_query + pack.Divide(PlaceOf(row));
  }
  ATTNLAB_HOST_DEVICE int32_t HeadOf(int64_t row) const {
    if (pack.Value() == 1) return first_head;
    const uint32_t place = PlaceOf(row);
    return first_head + static_cast<int32_t>(place - pack.Divide(place) * pack.Value());
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

 private:
  // Rows from the first one of first_query on. Few, so that a division by `pack` is one of 32 bits.
  ATTNLAB_HOST_DEVICE uint32_t PlaceOf(int64_t row) const {
    return static_cast<uint32_t>(row - first_query * pack.Value());
  }
};

// Tile `index` of a sequence, of `rows` rows of heads [head * pack, (head + 1) * pack). It is empty
// if the sequence has fewer tiles. `pack` is 1 or the number of query heads per KV head.
ATTNLAB_HOST_DEVICE inline QueryTile QueryTileOf(const Arguments& a, int64_t sequence, int32_t head,
                                                 int32_t pack, int64_t index, int64_t rows) {
  QueryTile tile;
  tile.q = a.q_sequences[sequence];
  tile.kv = a.kv_sequences[sequence];
  if (pack != 1) tile.pack = a.group;
  tile.first_head = head * pack;
  tile.kv_head = static_cast<int32_t>(a.group.Divide(static_cast<uint32_t>(tile.first_head)));
  tile.begin = index * rows;
  tile.end = tile.begin + rows;
  if (tile.end > tile.q.length * pack) tile.end = tile.q.length * pack;
  tile.first_query = pack == 1              ? tile.begin
                     : tile.begin < 1 << 30 ? a.group.Divide(static_cast<uint32_t>(tile.begin))
                                            : tile.begin / pack;
  return tile;
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_QUERY_TILE_H_
