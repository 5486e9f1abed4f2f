// The tiles of keys that a block walks, and the copies of K and V to shared memory, one tile after
// the other.
#ifndef ATTENTION_DEVICE_KV_STREAM_CUH_
#define ATTENTION_DEVICE_KV_STREAM_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/kv_tiles.h"
#include "attention/device/query_tile.h"
#include "attention/device/tile_copy.cuh"

namespace attnlab::device {

// The keys that a block walks. Tiles are numbered from the first one walked.
struct Keys {
  int first = 0;                     // the sequence's key that tile 0 begins with
  int count = 0;                     // keys from there to the sequence's end
  int full_begin = 0, full_end = 0;  // the tiles that every row sees whole
  // Tiles [0, whole) can be copied whole. A tile that the mask cuts is not among them: the rows
  // after the cut may not exist.
  int whole = 0;

  // Whether tile j needs a mask.
  __device__ bool Masked(int j) const { return j < full_begin || j >= full_end; }

  // Whether a row may see its first key in tile j. After a tile that all rows see, no row does.
  __device__ bool First(int j) const { return j <= full_begin || full_end == 0; }

  // `streams`: whether K and V can be copied in whole chunks of 16 bytes. If not, `whole` is 0.
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

// What a block keeps in shared memory to save registers.
struct Kept {
  QueryTile tile;
  Keys keys;
};

// Copies tiles of kKeys rows of kDim elements with kThreads threads. Each thread keeps the address
// of the first chunk that it copies of a tile, so going on to the next tile is one addition.
template <typename T, int kKeys, int kDim, int kThreads>
class KvStream {
  using Copy = TileCopy<T, kKeys, kDim, kThreads>;

 public:
  static constexpr int kBytes = Copy::kBytes;

  // Starts at the tile that begins with `first_row`.
  __device__ void Begin(const T* first_row, const Rows& rows) {
    from_ = first_row + Copy::Offset(rows.token_stride);
  }

  // Begins to copy a whole tile: all kKeys rows exist, and their kDim columns are whole chunks.
  __device__ void CopyWhole(char* to, const Rows& rows, int thread) const {
    Copy::CopyWhole(to, from_, rows.token_stride, thread);
  }
  // Begins to copy the first min(count, kKeys) rows, of `dim` columns, in any alignment.
  __device__ void CopyRows(char* to, const Rows& rows, int count, int dim) const {
    const T* const first_row = from_ - Copy::Offset(rows.token_stride);
    Copy::Copy(to, count < kKeys ? count : kKeys, dim, rows.whole_chunks,
               [&](int row) { return first_row + row * rows.token_stride; });
  }

  // Moves on to the next tile.
  __device__ void Advance(const Rows& rows) { from_ += kKeys * rows.token_stride; }

 private:
  const T* from_;
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_KV_STREAM_CUH_
