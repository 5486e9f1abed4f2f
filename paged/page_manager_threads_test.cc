// Writers with sequences of their own and readers at the same time. Under --config=tsan this finds
// data races; without it, what they do to the pages.
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "paged/page_manager.h"

namespace attnlab::paged {
namespace {

constexpr int kWriters = 3, kReaders = 2, kRounds = 300;

// Prompts that share prefixes with those of other threads.
std::vector<int32_t> Prompt(std::mt19937& random) {
  std::vector<int32_t> prompt(16 + random() % 100, 1);
  for (size_t i = random() % prompt.size(); i < prompt.size(); ++i) prompt[i] = random() % 3;
  return prompt;
}

void Write(PageManager& cache, unsigned seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int32_t> prompt = Prompt(random);
    const absl::StatusOr<SequenceId> id = cache.Begin(prompt);
    ASSERT_TRUE(id.ok()) << id.status();
    const int64_t cached = *cache.Tokens(*id);
    std::vector<PageCopy> copies;
    absl::Status s = cache.Append({{*id, absl::MakeConstSpan(prompt).subspan(cached)}}, &copies);
    ASSERT_TRUE(s.ok() || absl::IsResourceExhausted(s)) << s;
    ASSERT_TRUE(cache.Commit({*id}).ok());
    const absl::StatusOr<SequenceId> fork = cache.Fork(*id);
    ASSERT_TRUE(fork.ok()) << fork.status();
    s = cache.Append({{*fork, {7, 8, 9}}}, &copies);
    ASSERT_TRUE(s.ok() || absl::IsResourceExhausted(s)) << s;
    s = cache.SwapOut({*id}, &copies);
    ASSERT_TRUE(s.ok() || absl::IsResourceExhausted(s)) << s;
    std::vector<TableChange> changes;
    cache.TakeTableChanges(&changes);
    ASSERT_TRUE(cache.Free({*id, *fork}).ok());
  }
}

void Read(const PageManager& cache, unsigned seed, const std::atomic<bool>& stop) {
  std::mt19937 random(seed);
  while (!stop) {
    const std::vector<int32_t> prompt = Prompt(random);
    EXPECT_LE(cache.CachedTokens(prompt), static_cast<int64_t>(prompt.size()));
    const PageCounts counts = cache.counts();
    EXPECT_GE(counts.used(), 0);
    const SequenceId id{static_cast<int32_t>(random() % 8), static_cast<uint32_t>(random() % 100)};
    const absl::StatusOr<std::vector<PageId>> pages = cache.Pages(id);
    if (pages.ok()) {
      for (const PageId page : *pages) EXPECT_TRUE(kNoPage <= page && page < counts.pages);
    } else {
      EXPECT_TRUE(absl::IsNotFound(pages.status()) || absl::IsFailedPrecondition(pages.status()));
    }
    (void)cache.SharedPrefixes({id});
  }
}

TEST(PageManagerThreads, ReadersAndWriters) {
  PageManager::Options options;
  options.pages = 40;
  options.page = 4;
  options.host_pages = 30;
  options.sequences = 2 * kWriters;
  const auto cache = std::move(PageManager::Create(options).value());
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers, readers;
  for (int i = 0; i < kWriters; ++i) writers.emplace_back([&, i] { Write(*cache, i); });
  for (int i = 0; i < kReaders; ++i) readers.emplace_back([&, i] { Read(*cache, 100 + i, stop); });
  for (std::thread& t : writers) t.join();
  stop = true;
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(cache->Inconsistency(), "");
  const PageCounts counts = cache->counts();
  EXPECT_EQ(counts.used(), 0);
  EXPECT_EQ(counts.host_free, options.host_pages);
  EXPECT_EQ(counts.sequences, 0);
}

}  // namespace
}  // namespace attnlab::paged
