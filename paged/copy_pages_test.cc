#include "paged/copy_pages.h"

#include "gtest/gtest.h"

namespace attnlab::paged {
namespace {

TEST(CopyPages, NamesAPageThatDoesNotExist) {
  float pool[8] = {};
  const PageMemory memory = {Device::Cpu(), pool, nullptr, 16, 2, 0};
  EXPECT_EQ(CopyPages({{PageCopy::kWithinPool, 1, 2}}, memory).message(),
            "copies: entry 0 is from page 1 of 2 to page 2 of 2");
  EXPECT_EQ(CopyPages({{PageCopy::kToHost, 1, 0}}, memory).message(),
            "copies: entry 0 is from page 1 of 2 to page 0 of 0");
}

}  // namespace
}  // namespace attnlab::paged
