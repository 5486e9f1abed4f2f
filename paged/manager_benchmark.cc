// The speed and the memory of PageManager, on one core:
//
//   bazel run //paged:manager_benchmark
//
// BM_AllocateFree      an item is a page that is allocated, with its tokens and its place in the index,
//                      or one that is freed
// BM_MatchPrompt       a whole prompt of a million tokens is found in a full cache
// BM_DecodeStep        one item is a token of one of 256 sequences: Append(), Commit(), changes of
//                      the block table
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "paged/page_manager.h"

namespace attnlab::paged {
namespace {

using Tokens = std::vector<int32_t>;

Tokens RandomTokens(int64_t count) {
  std::mt19937 random(1);
  Tokens tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 128'000);
  return tokens;
}

void Report(benchmark::State& state, const absl::Status& status) {
  if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
}

// 100,000 live pages in sequences of `pages` pages. In each iteration a few random sequences end and
// as many begin. No two prompts are alike, so each page that is taken is evicted from the index
// first.
void BM_AllocateFree(benchmark::State& state) {
  constexpr int64_t kLive = 100'000;
  const int64_t pages = state.range(0), together = std::max<int64_t>(1, 128 / pages);
  PageManager::Options options;
  options.pages = kLive + kLive / 10;
  options.sequences = kLive / pages;
  const auto cache = std::move(PageManager::Create(options).value());
  const Tokens text = RandomTokens(1 << 16);
  std::mt19937 random(2);
  std::vector<PageCopy> copies;
  std::vector<SequenceId> ended, live(options.sequences);
  std::vector<PageManager::NewTokens> batch;
  const auto begin = [&](absl::Span<SequenceId> ids) {
    batch.clear();
    for (SequenceId& id : ids) {
      id = *cache->Begin({}, random());  // a salt of its own
      const int64_t at = random() % (text.size() - pages * options.page);
      batch.push_back({id, absl::MakeConstSpan(text).subspan(at, pages * options.page)});
    }
    Report(state, cache->Append(batch, &copies));
    Report(state, cache->Commit(ids));
  };
  begin(absl::MakeSpan(live));
  const auto replace = [&] {
    // Those at the end of `live`, after an exchange with random ones.
    const auto last = absl::MakeSpan(live).last(together);
    for (SequenceId& id : last) std::swap(id, live[random() % live.size()]);
    Report(state, cache->Free(last));
    begin(last);
  };
  for (int64_t i = 0; i < 4 * options.sequences / together; ++i) replace();
  for (auto _ : state) replace();
  state.SetItemsProcessed(state.iterations() * together * pages * 2);
  state.counters["evictions"] = static_cast<double>(cache->counts().evictions);
}
BENCHMARK(BM_AllocateFree)->ArgName("pages")->Arg(1)->Arg(8)->Arg(64)->Arg(1024);

// The pages of the prompt lie in random order, and the cache is full of others.
void BM_MatchPrompt(benchmark::State& state) {
  constexpr int64_t kTokens = 1'000'000;
  PageManager::Options options;
  options.page = state.range(0);
  options.pages = 2 * (kTokens / options.page + 1);
  const size_t memory = mallinfo2().uordblks + mallinfo2().hblkhd;
  const auto cache = std::move(PageManager::Create(options).value());
  const Tokens prompt = RandomTokens(kTokens);
  std::vector<PageCopy> copies;
  // Chunks of two sequences in turns.
  const SequenceId a = *cache->Begin({}, 0), b = *cache->Begin({}, 1);
  for (int64_t at = 0; at < kTokens; at += 1000) {
    const auto chunk = absl::MakeConstSpan(prompt).subspan(at, 1000);
    Report(state, cache->Append({{a, chunk}, {b, chunk}}, &copies));
  }
  Report(state, cache->Commit({a, b}));
  Report(state, cache->Free({a, b}));
  const size_t tokens = options.pages * options.page * sizeof(int32_t);
  state.counters["bytes_per_page"] = static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd -
                                                         memory - tokens - 4 * kTokens) /
                                     static_cast<double>(options.pages);
  for (auto _ : state) {
    if (cache->CachedTokens(prompt) != kTokens / options.page * options.page) {
      state.SkipWithError("not found");
    }
  }
  state.SetItemsProcessed(state.iterations() * kTokens);
}
BENCHMARK(BM_MatchPrompt)
    ->ArgName("page")
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);

void BM_DecodeStep(benchmark::State& state) {
  constexpr int64_t kSequences = 256, kMostTokens = 4096;
  PageManager::Options options;
  options.pages = kSequences * kMostTokens / options.page;
  options.sequences = kSequences;
  const auto cache = std::move(PageManager::Create(options).value());
  const Tokens token = {7};
  std::vector<SequenceId> ids;
  std::vector<PageManager::NewTokens> batch;
  std::vector<PageCopy> copies;
  std::vector<TableChange> changes;
  const auto begin = [&] {
    if (!ids.empty()) Report(state, cache->Free(ids));
    ids.clear();
    batch.clear();
    for (int64_t i = 0; i < kSequences; ++i) {
      ids.push_back(*cache->Begin({}, i));
      batch.push_back({ids.back(), token});
    }
  };
  int64_t steps = kMostTokens;
  for (auto _ : state) {
    if (steps++ == kMostTokens) {
      state.PauseTiming();
      begin();
      steps = 1;
      state.ResumeTiming();
    }
    Report(state, cache->Append(batch, &copies));
    Report(state, cache->Commit(ids));
    cache->TakeTableChanges(&changes);
    changes.clear();
  }
  state.SetItemsProcessed(state.iterations() * kSequences);
}
BENCHMARK(BM_DecodeStep);

}  // namespace
}  // namespace attnlab::paged
