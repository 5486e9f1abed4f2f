// Millions of random operations, each checked by the model: that every sequence finds its own K and
// V in its pages, that no page is lost or given out twice, and that failed calls change nothing.
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "paged/page_manager.h"
#include "paged/page_manager_model.h"

namespace attnlab::paged {
namespace {

void Check(const PageManager::Options& options, int64_t operations,
           const std::set<std::string>& never = {}) {
  std::map<std::string, int64_t> seen;
  // New managers now and then: bugs are near the beginning, too.
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::mt19937_64 random(seed);
    PageManagerModel model(options, [&](int64_t n) { return static_cast<int64_t>(random() % n); });
    for (int64_t i = 0; i < operations / 10; ++i) {
      ASSERT_EQ(model.Step(), "") << "seed " << seed << ", operation " << i;
    }
    for (const auto& [what, count] : model.seen()) seen[what] += count;
    if (model.manager().counts().evictions > 0) ++seen["eviction"];
  }
  for (const char* what : {"exhausted", "no row", "hit", "hit of pages in no use", "copy on write",
                           "copy to host", "copy from host", "came back without a copy",
                           "page replaced by its twin", "reclaimed", "eviction"}) {
    if (never.count(what) > 0) {
      EXPECT_EQ(seen[what], 0) << what;
    } else {
      EXPECT_GT(seen[what], 0) << what;
    }
  }
}

PageManager::Options Small() {
  PageManager::Options options;
  options.pages = 14;
  options.page = 2;
  options.host_pages = 8;
  options.sequences = 5;
  options.most_tokens = 1 << 20;  // with Reclaim(), more than the pool holds
  return options;
}

TEST(PageManagerProperty, AnyOperations) { Check(Small(), 1'000'000); }

// Two bits of a hash: nearly all pages collide.
TEST(PageManagerProperty, CollidingHashes) {
  PageManager::Options options = Small();
  options.hash_mask = 3;
  Check(options, 500'000);
}

TEST(PageManagerProperty, PagesOfOneToken) {
  PageManager::Options options = Small();
  options.page = 1;
  Check(options, 250'000, {"copy on write"});
}

TEST(PageManagerProperty, MorePagesThanAreNeeded) {
  PageManager::Options options = Small();
  options.pages = 60;
  options.page = 3;
  options.host_pages = 60;
  options.sequences = 7;
  Check(options, 250'000);
}

TEST(PageManagerProperty, WithoutPrefixCaching) {
  PageManager::Options options = Small();
  options.prefix_caching = false;
  Check(options, 250'000,
        {"hit", "hit of pages in no use", "came back without a copy", "page replaced by its twin",
         "eviction"});
}

}  // namespace
}  // namespace attnlab::paged
