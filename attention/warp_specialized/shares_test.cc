#include "attention/warp_specialized/shares.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::warp_specialized {
namespace {

struct Walked {
  uint32_t block;
  Piece piece;
  bool first, last;  // of its block
};

std::vector<Walked> WalkOf(const Shares& shares, uint32_t block) {
  std::vector<Walked> walk;
  for (Share share = ShareOf(shares, block); share.begin < share.end;) {
    const Piece piece = FirstPiece(shares, share);
    share.begin += piece.end - piece.begin;
    walk.push_back({block, piece, walk.empty(), share.begin == share.end});
  }
  return walk;
}

TEST(SharesTest, NothingIsSharedWithoutShares) {
  const Share share = ShareOf(Shares(), 0);
  EXPECT_EQ(share.begin, share.end);
}

TEST(SharesTest, CoverEachTileOnceAndNeverWaitForALaterBlock) {
  for (const uint32_t blocks : {1u, 2u, 3u, 66u, 132u}) {
    for (const uint32_t more : {0u, 1u, blocks / 2, blocks - 1, blocks + 1, 15 * blocks + 2}) {
      for (const uint32_t key_tiles : {2u, 3u, 64u, 129u}) {
        const uint32_t tiles = blocks + more;
        SCOPED_TRACE(testing::Message() << tiles << " tiles of " << key_tiles << " on " << blocks);
        const Shares shares = SharesOf(tiles, key_tiles, blocks);
        EXPECT_EQ(shares.whole % blocks, 0);
        EXPECT_LT(shares.whole, tiles);
        std::map<uint32_t, std::vector<Walked>> of_tile;
        uint32_t least = UINT32_MAX, most = 0;
        for (uint32_t block = 0; block < blocks; ++block) {
          uint32_t walked = 0;
          for (const Walked& w : WalkOf(shares, block)) {
            of_tile[w.piece.query_tile].push_back(w);
            walked += w.piece.end - w.piece.begin;
          }
          least = std::min(least, walked), most = std::max(most, walked);
        }
        EXPECT_LE(most - least, 1);
        EXPECT_EQ(of_tile.size(), tiles - shares.whole);
        EXPECT_EQ(of_tile.begin()->first, shares.whole);
        for (const auto& [tile, pieces] : of_tile) {
          ASSERT_LT(tile, tiles);
          // In the order of blocks, so the end of a tile's keys comes first.
          ASSERT_LE(pieces.size(), 2) << "tile " << tile;
          EXPECT_EQ(pieces.back().piece.begin, 0);
          EXPECT_EQ(pieces.front().piece.end, static_cast<int>(key_tiles));
          if (pieces.size() == 1) continue;
          EXPECT_EQ(pieces[0].piece.begin, pieces[1].piece.end);
          // One block leaves its part at once, and the next one takes it at its end.
          EXPECT_TRUE(pieces[0].first);
          EXPECT_TRUE(pieces[1].last);
          EXPECT_EQ(pieces[0].block + 1, pieces[1].block);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnlab::warp_specialized
