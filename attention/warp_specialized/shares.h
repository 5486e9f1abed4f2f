// How blocks share the last query tiles of a launch, so that all end at the same time.
//
// If all tiles take equally long, 2.5 rounds of them take as long as 3. So the tiles of the last round and
// a half are divided into equal shares, by their tiles of keys:
//
//   query tiles       0       1       2       3       4       5
//                 |-------|-------|-------|-------|-------|-------|
//   blocks        |     3     |     2     |     1     |     0     |
//
// A block walks its share from left to right. Block 2 begins with the end of query tile 1, and leaves its O and
// the rows' states in the workspace. Block 3 ends with the beginning of that tile. By then the other part has been
// there for long, so it does not wait, and it stores O. No block waits for one of a higher index. GPUs begin blocks
// in the order of their index, so all go on even if few run at a time. CUDA does not promise that order.
//
// Plain C++, because device code includes it.
#ifndef ATTENTION_WARP_SPECIALIZED_SHARES_H_
#define ATTENTION_WARP_SPECIALIZED_SHARES_H_

#include <cstdint>

#include "attention/device/divisor.h"
#include "attention/device/host_device.h"

namespace attnlab::warp_specialized {

struct Shares {
  uint32_t whole = 0;  // query tiles before the shared ones, which have a block each
  uint32_t blocks = 0;
  device::Divisor key_tiles;      // of a query tile
  uint32_t each = 0, longer = 0;  // key tiles of a share; so many shares have one more
};

// Key tiles [begin, end) of those of all shared query tiles.
struct Share {
  uint32_t begin = 0, end = 0;
};

// Key tiles [begin, end) of a query tile.
struct Piece {
  uint32_t query_tile = 0;
  int begin = 0, end = 0;
};

// `tiles` is at least `blocks`, and blocks * key_tiles below 2^30.
inline Shares SharesOf(uint32_t tiles, uint32_t key_tiles, uint32_t blocks) {
  Shares shares;
  shares.whole = (tiles / blocks - 1) * blocks;
  shares.blocks = blocks;
  shares.key_tiles = device::Divisor(key_tiles);
  const uint32_t all = (tiles - shares.whole) * key_tiles;
  shares.each = all / blocks;
  shares.longer = all % blocks;
  return shares;
}

// Empty if nothing is shared.
ATTNLAB_HOST_DEVICE inline Share ShareOf(const Shares& shares, uint32_t block) {
  if (shares.each == 0) return {};
  const uint32_t i = shares.blocks - 1 - block;
  const uint32_t begin = i * shares.each + (i < shares.longer ? i : shares.longer);
  return {begin, begin + shares.each + (i < shares.longer ? 1 : 0)};
}

// The first piece of a share that is not empty.
ATTNLAB_HOST_DEVICE inline Piece FirstPiece(const Shares& shares, const Share& share) {
  const uint32_t tile = shares.key_tiles.Divide(share.begin), all = shares.key_tiles.Value();
  const uint32_t begin = share.begin - tile * all, rest = begin + share.end - share.begin;
  return {shares.whole + tile, static_cast<int>(begin), static_cast<int>(rest < all ? rest : all)};
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_SHARES_H_
