// The query rows of a block: which queries of which heads they are, and where they and their keys lie.
// Row r is query r / pack of the sequence, of head kv_head * pack + r % pack. Its numbers have 32 bits,
// because what a block does before its first copy is time in which nothing is read.
//
// Plain C++, because device code includes it.
#ifndef ATTENTION_SPLIT_K_TILE_ROWS_H_
#define ATTENTION_SPLIT_K_TILE_ROWS_H_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/arguments.h"
#include "attention/device/host_device.h"
#include "attention/split_k/split.h"

namespace attnlab::split_k {

// device::Span of 32 bits. Without lengths there is little to do, and it is done first.
struct TokenSpan {
  int32_t batch = 0, begin = 0, length = 0;

  ATTNLAB_HOST_DEVICE static TokenSpan Of(const device::Sequences& sequences, uint32_t i) {
    if (sequences.offsets == nullptr && sequences.lengths == nullptr) {
      return {static_cast<int32_t>(i), 0, static_cast<int32_t>(sequences.longest)};
    }
    const device::Span span = sequences[i];
    return {static_cast<int32_t>(span.batch), static_cast<int32_t>(span.begin),
            static_cast<int32_t>(span.length)};
  }
};

struct TileRows {
  TokenSpan q, kv;  // of the sequence
  int32_t kv_head = 0;
  int32_t begin = 0, end = 0;  // rows; the tile is empty if the sequence has fewer

  ATTNLAB_HOST_DEVICE int32_t Count() const { return end - begin; }

  ATTNLAB_HOST_DEVICE int32_t QueryOf(const SplitGrid& grid, int32_t row) const {
    return static_cast<int32_t>(grid.pack.Divide(static_cast<uint32_t>(row)));
  }

  // Elements from the beginning of Q, O or LSE to the row.
  ATTNLAB_HOST_DEVICE int64_t Offset(const SplitGrid& grid, const device::Rows& rows,
                                     int32_t row) const {
    const int32_t pack = static_cast<int32_t>(grid.pack.Value()), query = QueryOf(grid, row);
    return rows.Offset(q.batch, q.begin + query, kv_head * pack + row - query * pack);
  }

  // Elements from the beginning of K or V to a key. `entry`: pages.EntryOf(kv.batch, key).
  ATTNLAB_HOST_DEVICE int64_t KvOffset(const device::Rows& rows, const device::Pages& pages,
                                       int32_t entry, uint32_t key) const {
    return rows.Offset(pages.PageOf(entry), kv.begin + pages.RowOf(key), kv_head);
  }

  // The keys that the row sees. A row beyond the tile sees none.
  ATTNLAB_HOST_DEVICE KvRange Visible(const SplitGrid& grid, const Mask& mask, int32_t row) const {
    if (row >= end) return {0, 0};
    return VisibleKv(mask, QueryOf(grid, row), q.length, kv.length);
  }

  // The keys that the block's rows see, all of them together.
  ATTNLAB_HOST_DEVICE SplitKeys Keys(const SplitGrid& grid, const Mask& mask) const {
    if (begin >= end) return {};
    return KeysOf(mask, QueryOf(grid, begin), QueryOf(grid, end - 1), q.length, kv.length);
  }
};

// The rows of a place in the grid, `rows` or fewer.
ATTNLAB_HOST_DEVICE inline TileRows RowsOf(const device::Arguments& a, const SplitGrid& grid,
                                           const SplitPlace& place, int32_t rows) {
  TileRows tile;
  tile.q = TokenSpan::Of(a.q_sequences, place.sequence);
  tile.kv = TokenSpan::Of(a.kv_sequences, place.sequence);
  tile.kv_head = static_cast<int32_t>(place.head);
  const int32_t all = tile.q.length * static_cast<int32_t>(grid.pack.Value());
  tile.begin = static_cast<int32_t>(place.tile) * rows;
  tile.end = all - tile.begin < rows ? all : tile.begin + rows;
  return tile;
}

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_TILE_ROWS_H_
