#include "paged/block_table.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "paged/page_manager.h"

namespace attnlab::paged {
namespace {

TEST(BlockTable, FollowsTheManager) {
  PageManager::Options options;
  options.pages = 2000;
  options.page = 2;
  options.host_pages = 1000;
  options.sequences = 3;
  const auto cache = std::move(PageManager::Create(options).value());
  BlockTable table = BlockTable::Create(Device::Cpu(), *cache).value();
  std::vector<PageCopy> copies;
  const auto expect_row = [&](SequenceId id) {
    ASSERT_TRUE(table.Update(*cache).ok());
    const std::vector<PageId> pages = cache->Pages(id).value();
    const PageTableView view = table.pages();
    EXPECT_EQ(view.rows, 3);
    EXPECT_EQ(table.lengths().data[id.row], cache->Tokens(id).value());
    for (size_t i = 0; i < pages.size(); ++i) {
      ASSERT_EQ(view.data[id.row * view.row_stride + i], pages[i]) << i;
    }
  };
  // More changes than fit one patch.
  std::vector<int32_t> tokens(1501);
  std::iota(tokens.begin(), tokens.end(), 0);
  const SequenceId a = cache->Begin({}).value(), b = cache->Begin({}).value();
  ASSERT_TRUE(cache->Append({{a, tokens}, {b, {1, 2, 3}}}, &copies).ok());
  expect_row(a);
  expect_row(b);
  EXPECT_EQ(table.lengths().data[2], 0);

  const SequenceId c = cache->Fork(a).value();
  ASSERT_TRUE(cache->Append({{c, {7}}}, &copies).ok());  // in a copy of the last page
  expect_row(c);
  expect_row(a);

  ASSERT_TRUE(cache->SwapOut({a}, &copies).ok());
  ASSERT_TRUE(cache->Free({b}).ok());
  ASSERT_TRUE(table.Update(*cache).ok());
  EXPECT_EQ(table.lengths().data[a.row], 0);
  EXPECT_EQ(table.lengths().data[b.row], 0);
  ASSERT_TRUE(cache->SwapIn({a}, &copies).ok());
  expect_row(a);
}

}  // namespace
}  // namespace attnlab::paged
