#include "attention/device/pages.h"

#include <cstdint>
#include <limits>

#include "attention/device/arguments.h"
#include "attention/device/query_tile.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

TEST(PagesTest, WithoutATableASequenceIsOnePage) {
  const Pages pages;
  for (int64_t key : {int64_t{0}, int64_t{1}, int64_t{1000}, (int64_t{1} << 31) - 2}) {
    EXPECT_EQ(pages.PageOf(pages.EntryOf(5, key)), 5);
    EXPECT_EQ(pages.RowOf(key), key);
  }
  EXPECT_TRUE(pages.Hold(1 << 30));
}

TEST(PagesTest, TheTableSaysThePage) {
  // Two sequences of pages of 4 keys; the rows of the table are 5 entries apart.
  const int32_t table[] = {7, 0, 3, -1, -1, 2, 6, -1};
  Pages pages;
  pages.table = table;
  pages.row_stride = 5;
  pages.last = 7;
  pages.shift = 2;
  for (int key = 0; key < 12; ++key) {
    EXPECT_EQ(pages.PageOf(pages.EntryOf(0, key)), table[key / 4]);
    EXPECT_EQ(pages.RowOf(key), key % 4);
  }
  EXPECT_EQ(pages.Rows(), 4);
  for (int key = 0; key < 8; ++key)
    EXPECT_EQ(pages.PageOf(pages.EntryOf(1, key)), table[5 + key / 4]);
  EXPECT_TRUE(pages.Hold(4));
  EXPECT_FALSE(pages.Hold(8));
}

TEST(PagesTest, PagesOfOneKey) {
  const int32_t table[] = {4, 1, 3};
  Pages pages;
  pages.table = table;
  pages.last = 4;
  pages.shift = 0;
  for (int key = 0; key < 3; ++key) {
    EXPECT_EQ(pages.PageOf(pages.EntryOf(0, key)), table[key]);
    EXPECT_EQ(pages.RowOf(key), 0);
  }
}

TEST(PagesTest, EntriesOutOfRangeBecomeTheLastPage) {
  const int32_t table[] = {-1, std::numeric_limits<int32_t>::min(), 9,
                           std::numeric_limits<int32_t>::max(), 8};
  Pages pages;
  pages.table = table;
  pages.last = 8;
  pages.shift = 0;
  for (int key = 0; key < 5; ++key) EXPECT_EQ(pages.PageOf(pages.EntryOf(0, key)), 8);
}

TEST(PagesTest, OffsetsOfKeys) {
  Rows k;
  k.batch_stride = 100000, k.token_stride = 1000, k.head_stride = 10;
  QueryTile tile;
  tile.kv_head = 3;
  // Not paged: sequence 0 of a packed batch, from token 20 on.
  tile.kv = {0, 20, 50};
  Pages pages;
  EXPECT_EQ(tile.KvOffset(k, pages, pages.EntryOf(tile.kv.batch, 7), 7), 27030);
  // Paged: sequence 1.
  tile.kv = {1, 0, 50};
  const int32_t table[] = {-1, -1, 6, 9};
  pages.table = table;
  pages.row_stride = 2;
  pages.last = 9;
  pages.shift = 4;
  EXPECT_EQ(tile.KvOffset(k, pages, pages.EntryOf(tile.kv.batch, 23), 23), 907030);
}

}  // namespace
}  // namespace attnlab::device
