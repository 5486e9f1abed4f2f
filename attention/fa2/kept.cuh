// What a block keeps in shared memory of where it stands, since registers are dear.
#ifndef ATTENTION_FA2_KEPT_CUH_
#define ATTENTION_FA2_KEPT_CUH_

#include "attention/device/kv_tiles.h"
#include "attention/device/query_tile.h"

namespace attnlab::fa2 {

// The keys that the block walks, tile by tile.
struct Keys {
  int first = 0;                     // of the sequence
  int count = 0;                     // from there to the sequence's end
  int full_begin = 0, full_end = 0;  // the tiles that every row sees all of
  // Tiles of which a copy may bring all rows, from the first on; not one that the mask cuts, whose
  // rows behind that may or may not be there.
  int whole = 0;

  // Whether tile j wants a look at the mask.
  __device__ bool Masked(int j) const { return j < full_begin || j >= full_end; }

  // Whether a row may see its first key in tile j: not behind one that all rows see.
  __device__ bool First(int j) const { return j <= full_begin || full_end == 0; }

  // `streams`: whether rows are such that there are tiles of the last kind.
  __device__ static Keys Of(const device::KvTiles& tiles, int64_t length, int tile, bool streams) {
    Keys keys;
    keys.first = static_cast<int>(tiles.begin);
    keys.count = static_cast<int>(length - tiles.begin);
    keys.full_begin = static_cast<int>((tiles.full_begin - tiles.begin) / tile);
    keys.full_end = static_cast<int>((tiles.full_end - tiles.begin) / tile);
    keys.whole = streams ? static_cast<int>((tiles.end - tiles.begin) / tile) : 0;
    return keys;
  }
};

struct Kept {
  device::QueryTile tile;
  Keys keys;
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_KEPT_CUH_
