#include "paged/page_manager.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::paged {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Pages of 4 tokens.
class PageManagerTest : public ::testing::Test {
 protected:
  void Make(int64_t pages, int64_t host_pages = 0, int64_t sequences = 4) {
    PageManager::Options options;
    options.pages = pages;
    options.page = 4;
    options.host_pages = host_pages;
    options.sequences = sequences;
    cache_ = std::move(PageManager::Create(options).value());
  }

  // Begins a sequence with these tokens, and commits it.
  SequenceId Write(const std::vector<int32_t>& tokens, uint64_t salt = 0) {
    const SequenceId id = cache_->Begin(tokens, salt).value();
    const std::vector<int32_t> rest(tokens.begin() + Cached(id), tokens.end());
    EXPECT_TRUE(cache_->Append({{id, rest}}, &copies_).ok());
    EXPECT_TRUE(cache_->Commit({id}).ok());
    return id;
  }
  absl::Status Add(SequenceId id, const std::vector<int32_t>& tokens) {
    return cache_->Append({{id, tokens}}, &copies_);
  }
  int64_t Cached(SequenceId id) { return cache_->Tokens(id).value(); }
  std::vector<PageId> Pages(SequenceId id) { return cache_->Pages(id).value(); }

  std::unique_ptr<PageManager> cache_;
  std::vector<PageCopy> copies_;
};

TEST_F(PageManagerTest, FullPagesOfAPrefixAreShared) {
  Make(10);
  const SequenceId a = Write({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const SequenceId b = cache_->Begin({1, 2, 3, 4, 5, 6, 7, 8, 9}).value();
  EXPECT_EQ(Cached(b), 8);
  EXPECT_EQ(Pages(b), (std::vector<PageId>{Pages(a)[0], Pages(a)[1]}));
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4, 0, 6, 7, 8}), 4);
  EXPECT_EQ(cache_->CachedTokens({0, 2, 3, 4, 5, 6, 7, 8}), 0);
  EXPECT_EQ(cache_->CachedTokens({5, 6, 7, 8}), 0);  // the same tokens, but not at the beginning
  EXPECT_EQ(cache_->counts().used(), 3);
  EXPECT_EQ(cache_->counts().prompt_tokens, 18);
  EXPECT_EQ(cache_->counts().cached_tokens, 8);
}

TEST_F(PageManagerTest, WhatIsNotCommittedIsNotFound) {
  Make(10);
  const SequenceId a = cache_->Begin({}).value();
  ASSERT_TRUE(Add(a, {1, 2, 3, 4}).ok());
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4}), 0);
  ASSERT_TRUE(cache_->Commit({a}).ok());
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4}), 4);
}

TEST_F(PageManagerTest, SaltsSeparate) {
  Make(10);
  Write({1, 2, 3, 4}, 7);
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4}, 7), 4);
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4}, 8), 0);
}

// All hashes are the same, so that only tokens, predecessors and salts tell pages apart.
TEST_F(PageManagerTest, ACollisionFindsNothingOfOthers) {
  PageManager::Options options;
  options.pages = 10;
  options.page = 2;
  options.hash_mask = 0;
  cache_ = std::move(PageManager::Create(options).value());
  Write({1, 2, 5, 6});
  Write({3, 4, 5, 6});
  EXPECT_EQ(cache_->CachedTokens({1, 2, 5, 6}), 4);
  EXPECT_EQ(cache_->CachedTokens({3, 4, 5, 6}), 4);
  EXPECT_EQ(cache_->CachedTokens({5, 6}), 0);
  EXPECT_EQ(cache_->CachedTokens({1, 3}), 0);
  EXPECT_EQ(cache_->CachedTokens({1, 2}, 1), 0);
}

TEST_F(PageManagerTest, WhoWritesTheSameAtTheSameTimeEndsWithOnePage) {
  Make(10);
  const SequenceId a = cache_->Begin({}).value(), b = cache_->Begin({}).value();
  ASSERT_TRUE(cache_->Append({{a, {1, 2, 3, 4, 5}}, {b, {1, 2, 3, 4, 6}}}, &copies_).ok());
  EXPECT_NE(Pages(a)[0], Pages(b)[0]);
  ASSERT_TRUE(cache_->Commit({a, b}).ok());
  EXPECT_EQ(Pages(a)[0], Pages(b)[0]);
  EXPECT_EQ(cache_->counts().used(), 3);
}

TEST_F(PageManagerTest, TheLeastRecentlyUsedIsEvictedAndOfAPrefixItsEnd) {
  Make(4);
  const SequenceId old = Write({1, 2, 3, 4, 5, 6, 7, 8});
  const SequenceId young = Write({9, 9, 9, 9, 8, 8, 8, 8});
  ASSERT_TRUE(cache_->Free({old}).ok());
  ASSERT_TRUE(cache_->Free({young}).ok());
  EXPECT_EQ(cache_->counts().evictable, 4);
  const SequenceId c = cache_->Begin({}).value();
  ASSERT_TRUE(Add(c, {0}).ok());
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4, 5, 6, 7, 8}), 4);
  ASSERT_TRUE(Add(c, {0, 0, 0, 0}).ok());
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4, 5, 6, 7, 8}), 0);
  EXPECT_EQ(cache_->CachedTokens({9, 9, 9, 9, 8, 8, 8, 8}), 8);
  EXPECT_EQ(cache_->counts().evictions, 2);
}

TEST_F(PageManagerTest, AHitKeepsAPrefixAlive) {
  Make(3);
  for (const int32_t token : {1, 2, 3}) {
    ASSERT_TRUE(cache_->Free({Write({token, token, token, token})}).ok());
  }
  ASSERT_TRUE(cache_->Free({cache_->Begin({1, 1, 1, 1}).value()}).ok());
  Write({5});
  EXPECT_EQ(cache_->CachedTokens({1, 1, 1, 1}), 4);
  EXPECT_EQ(cache_->CachedTokens({2, 2, 2, 2}), 0);
}

TEST_F(PageManagerTest, PagesThatHoldNothingAreTakenFirst) {
  Make(3);
  ASSERT_TRUE(cache_->Free({Write({1, 2, 3, 4, 5})}).ok());
  Write({6, 6, 6, 6, 6});
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4}), 4);
}

TEST_F(PageManagerTest, ASharedPageIsCopiedBeforeItIsWritten) {
  Make(10);
  const SequenceId a = Write({1, 2, 3, 4, 5});
  const SequenceId b = cache_->Fork(a).value();
  EXPECT_EQ(Pages(a), Pages(b));
  const PageId shared = Pages(a)[1];
  ASSERT_TRUE(Add(a, {6}).ok());
  ASSERT_EQ(copies_.size(), 1u);
  EXPECT_EQ(copies_[0].kind, PageCopy::kWithinPool);
  EXPECT_EQ(copies_[0].from, shared);
  EXPECT_EQ(copies_[0].to, Pages(a)[1]);
  // The last one may write.
  ASSERT_TRUE(Add(b, {7}).ok());
  EXPECT_EQ(copies_.size(), 1u);
  EXPECT_EQ(Pages(b)[1], shared);
  EXPECT_EQ(Pages(a)[0], Pages(b)[0]);
}

TEST_F(PageManagerTest, APageThatOthersCanFindIsCopiedBeforeItIsWritten) {
  Make(10);
  const SequenceId a = Write({1, 2, 3, 4});
  ASSERT_TRUE(cache_->Truncate(a, 2).ok());
  ASSERT_TRUE(Add(a, {9}).ok());
  EXPECT_EQ(copies_.size(), 1u);
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4}), 4);
  ASSERT_TRUE(Add(a, {9}).ok());
  ASSERT_TRUE(cache_->Commit({a}).ok());
  EXPECT_EQ(cache_->CachedTokens({1, 2, 9, 9}), 4);
}

// Three of a page, of which two are written: two pages are needed. All three: still two.
TEST_F(PageManagerTest, ABatchThatJustFitsIsTaken) {
  for (const size_t written : {2, 3}) {
    Make(3);
    const SequenceId a = Write({1});
    const SequenceId forks[] = {a, cache_->Fork(a).value(), cache_->Fork(a).value()};
    std::vector<PageManager::NewTokens> batch;
    const std::vector<int32_t> token = {2};
    for (size_t i = 0; i < written; ++i) batch.push_back({forks[i], token});
    EXPECT_TRUE(cache_->Append(batch, &copies_).ok()) << written;
  }
}

TEST_F(PageManagerTest, ExhaustionSaysWhatThereIsAndChangesNothing) {
  Make(4);
  const SequenceId a = Write({1});
  ASSERT_TRUE(cache_->Free({Write({5, 6, 7, 8})}).ok());
  const std::string before = cache_->State();
  const absl::Status s = Add(a, std::vector<int32_t>(16, 9));
  EXPECT_TRUE(absl::IsResourceExhausted(s));
  EXPECT_EQ(s.message(), "pages: 4 needed, 2 free and 1 evictable of 4");
  EXPECT_EQ(cache_->State(), before);
  EXPECT_THAT(copies_, IsEmpty());

  Make(4, 0, 1);
  Write({1});
  EXPECT_EQ(cache_->Begin({}).status().message(), "sequences: 1 needed, 0 free of 1");
}

TEST_F(PageManagerTest, PagesBehindAWindowAreGivenBack) {
  Make(4);
  const SequenceId a = Write({1, 2, 3, 4, 5, 6, 7, 8, 9});
  ASSERT_TRUE(cache_->Reclaim(a, 7).ok());
  EXPECT_THAT(Pages(a), ElementsAre(kNoPage, ::testing::Ge(0), ::testing::Ge(0)));
  EXPECT_EQ(cache_->counts().used(), 2);
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4, 5, 6, 7, 8}), 8);
  // Once the first page has gone, the second is found no more, although it is there.
  Write({0, 0, 0, 0, 0});
  EXPECT_EQ(cache_->CachedTokens({1, 2, 3, 4, 5, 6, 7, 8}), 0);
  EXPECT_THAT(cache_->Truncate(a, 3).message(), HasSubstr("tokens: 3 is not in [4, 9]"));
  EXPECT_EQ(cache_->Inconsistency(), "");
}

// Two chains whose first page has been evicted, and whose second one has left the index when a fork was committed.
// With equal hashes, what follows must not be taken for each other.
TEST_F(PageManagerTest, NothingFollowsAPageThatLeftTheIndex) {
  PageManager::Options options;
  options.pages = 20;
  options.page = 1;
  options.sequences = 12;
  options.hash_mask = 0;
  cache_ = std::move(PageManager::Create(options).value());
  const auto chain = [&](int32_t one, int32_t two) {
    const SequenceId x = Write({one}), a = cache_->Begin({}).value();
    EXPECT_TRUE(Add(a, {one, two}).ok());
    const SequenceId b = cache_->Fork(a).value(), c = cache_->Fork(a).value();
    EXPECT_TRUE(cache_->Commit({a}).ok());
    EXPECT_TRUE(cache_->Free({x}).ok());
    EXPECT_TRUE(cache_->Reclaim(a, 1).ok());
    const SequenceId d = cache_->Begin({}).value();  // evicts x's page
    EXPECT_TRUE(Add(d, std::vector<int32_t>(20 - cache_->counts().used(), 99)).ok());
    EXPECT_TRUE(cache_->Free({d}).ok());
    EXPECT_TRUE(cache_->Truncate(c, 1).ok());
    EXPECT_TRUE(cache_->Commit({c}).ok());
    EXPECT_TRUE(Add(c, {two}).ok());
    EXPECT_TRUE(cache_->Commit({c}).ok());
    EXPECT_TRUE(cache_->Commit({b}).ok());
    EXPECT_EQ(cache_->Inconsistency(), "");
    return a;
  };
  const SequenceId a = chain(1, 2), e = chain(3, 4);
  for (const SequenceId id : {a, e}) {
    ASSERT_TRUE(Add(id, {5}).ok());
    ASSERT_TRUE(cache_->Commit({id}).ok());
  }
  EXPECT_NE(Pages(a)[2], Pages(e)[2]);
  EXPECT_EQ(cache_->Inconsistency(), "");
}

TEST_F(PageManagerTest, SwapsToTheHostAndBack) {
  Make(4, 3);
  const SequenceId a = Write({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const std::vector<PageId> pages = Pages(a);
  ASSERT_TRUE(cache_->SwapOut({a}, &copies_).ok());
  ASSERT_EQ(copies_.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(copies_[i].kind, PageCopy::kToHost);
    EXPECT_EQ(copies_[i].from, pages[i]);
  }
  EXPECT_EQ(cache_->counts().used(), 0);
  EXPECT_EQ(cache_->counts().host_free, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Add(a, {1})));
  EXPECT_EQ(cache_->Tokens(a).value(), 9);

  // Another one takes two of the pages. What is left in the index needs no copy.
  const SequenceId b = Write({0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(cache_->SwapIn({a}, &copies_).ok(), false);
  ASSERT_TRUE(cache_->Truncate(b, 4).ok());
  ASSERT_TRUE(cache_->Free({b}).ok());
  copies_.clear();
  ASSERT_TRUE(cache_->SwapIn({a}, &copies_).ok());
  EXPECT_EQ(Pages(a).size(), 3u);
  for (const PageCopy& copy : copies_) EXPECT_EQ(copy.kind, PageCopy::kFromHost);
  EXPECT_LT(copies_.size(), 3u);
  EXPECT_EQ(cache_->counts().host_free, 3);
  EXPECT_EQ(cache_->Inconsistency(), "");
}

TEST_F(PageManagerTest, TooFewHostPages) {
  Make(4, 2);
  const SequenceId a = Write({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const std::string before = cache_->State();
  EXPECT_EQ(cache_->SwapOut({a}, &copies_).message(), "host_pages: 3 needed, 2 free of 2");
  EXPECT_EQ(cache_->State(), before);
}

TEST_F(PageManagerTest, TableChangesAreThoseSinceTheLastCall) {
  Make(10);
  std::vector<TableChange> changes;
  const SequenceId a = Write({1, 2, 3, 4, 5});
  cache_->TakeTableChanges(&changes);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[1].row, a.row);
  EXPECT_EQ(changes[1].column, 1);
  EXPECT_EQ(changes[1].page, Pages(a)[1]);

  changes.clear();
  ASSERT_TRUE(Add(a, {6}).ok());
  cache_->TakeTableChanges(&changes);
  EXPECT_THAT(changes, IsEmpty());
  ASSERT_TRUE(Add(a, {7, 8, 9}).ok());
  cache_->TakeTableChanges(&changes);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].column, 2);
}

TEST_F(PageManagerTest, SaysWhichSequencesShareAPrefix) {
  Make(20);
  const SequenceId a = Write({1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1});
  const SequenceId b = Write({9, 2, 3, 4});
  const SequenceId c = Write({1, 2, 3, 4, 5, 6, 7, 8, 2});
  const SequenceId d = cache_->Fork(b).value();
  const std::vector<SharedPrefix> groups = cache_->SharedPrefixes({a, b, c, d}).value();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].pages, 2);
  EXPECT_THAT(groups[0].members, ElementsAre(0, 2));
  EXPECT_EQ(groups[1].pages, 1);
  EXPECT_THAT(groups[1].members, ElementsAre(1, 3));
}

TEST_F(PageManagerTest, OptionsOutOfRange) {
  PageManager::Options options;
  EXPECT_EQ(PageManager::Create(options).status().message(), "pages: 0 is not in [1, 1073741824]");
  options.pages = 5;
  options.page = 257;
  EXPECT_EQ(PageManager::Create(options).status().message(), "page: 257 is not in [1, 256]");
}

TEST_F(PageManagerTest, ASequenceHasAMostOfTokens) {
  PageManager::Options options;
  options.pages = 10;
  options.page = 4;
  options.most_tokens = 6;
  cache_ = std::move(PageManager::Create(options).value());
  EXPECT_EQ(cache_->columns(), 2);
  const SequenceId a = cache_->Begin({}).value();
  EXPECT_EQ(Add(a, {1, 2, 3, 4, 5, 6, 7}).message(), "sequence (row 0, use 0): 7 tokens, above 6");
}

TEST_F(PageManagerTest, AnEndedSequenceIsNotItsRowsNextOne) {
  Make(10);
  const SequenceId a = Write({1});
  ASSERT_TRUE(cache_->Free({a}).ok());
  const SequenceId b = Write({2});
  EXPECT_EQ(a.row, b.row);
  EXPECT_EQ(cache_->Pages(a).status().message(), "sequence (row 0, use 0): does not exist");
  EXPECT_EQ(cache_->Free({b, b}).message(), "sequence (row 0, use 1): is given twice");
}

}  // namespace
}  // namespace attnlab::paged
