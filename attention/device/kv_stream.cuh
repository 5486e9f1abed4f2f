// The keys that a block walks, and K or V on its way to shared memory, a tile of keys after the
// other.
#ifndef ATTENTION_DEVICE_KV_STREAM_CUH_
#define ATTENTION_DEVICE_KV_STREAM_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/kv_tiles.h"
#include "attention/device/query_tile.h"
#include "attention/device/tile_copy.cuh"

namespace attnlab::device {

// In tiles, numbered from the first that the block walks.
struct Keys {
  int first = 0;                     // of the sequence
  int count = 0;                     // from there to the sequence's end
  int full_begin = 0, full_end = 0;  // the tiles that every row sees all of
  // Tiles of which a copy may bring all rows, from the first on; not one that the mask cuts, whose
  // rows behind that may or may not be there.
  int whole = 0;

  // Whether tile j needs a mask.
  __device__ bool Masked(int j) const { return j < full_begin || j >= full_end; }

  // Whether a row may see its first key in tile j: not behind one that all rows see.
  __device__ bool First(int j) const { return j <= full_begin || full_end == 0; }

  // `streams`: whether rows are such that there are tiles of the last kind.
  __device__ static Keys Of(const KvTiles& tiles, int64_t length, int tile, bool streams) {
    Keys keys;
    keys.first = static_cast<int>(tiles.begin);
    keys.count = static_cast<int>(length - tiles.begin);
    keys.full_begin = static_cast<int>((tiles.full_begin - tiles.begin) / tile);
    keys.full_end = static_cast<int>((tiles.full_end - tiles.begin) / tile);
    keys.whole = streams ? static_cast<int>((tiles.end - tiles.begin) / tile) : 0;
    return keys;
  }
};

// What a block keeps of this in shared memory, to save registers.
struct Kept {
  QueryTile tile;
  Keys keys;
};

// Tiles of kKeys rows of kDim elements, copied by kThreads threads. Each thread keeps the address
// of what it copies first of a tile, so that the walk has only to add to it.
template <typename T, int kKeys, int kDim, int kThreads>
class KvStream {
  using Copy = TileCopy<T, kKeys, kDim, kThreads>;

 public:
  static constexpr int kBytes = Copy::kBytes;

  // At the tile that begins with this row.
  __device__ void Begin(const T* first_row, const Rows& rows) {
    from_ = first_row + Copy::Offset(rows.token_stride);
  }

  // Begins to copy the tile whole, where there is all of it, and of kDim columns in whole chunks.
  __device__ void CopyWhole(char* to, const Rows& rows, int thread) const {
    Copy::CopyWhole(to, from_, rows.token_stride, thread);
  }
  // Begins to copy its first `count` rows, or kKeys, of `dim` columns, in any alignment.
  __device__ void CopyRows(char* to, const Rows& rows, int count, int dim) const {
    const T* const first_row = from_ - Copy::Offset(rows.token_stride);
    Copy::Copy(to, count < kKeys ? count : kKeys, dim, rows.whole_chunks,
               [&](int row) { return first_row + row * rows.token_stride; });
  }

  // On to the next tile.
  __device__ void Advance(const Rows& rows) { from_ += kKeys * rows.token_stride; }

 private:
  const T* from_;
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_KV_STREAM_CUH_
