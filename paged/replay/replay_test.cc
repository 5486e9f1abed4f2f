// Every figure of the small traces is computed by hand.
#include "paged/replay/replay.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::paged {
namespace {

using ::testing::HasSubstr;

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    cache_options_.pages = 100;
    cache_options_.page = 4;
    options_.step = 1;
  }

  absl::StatusOr<ReplayReport> TryReplay(const std::vector<Request>& requests) {
    cache_ = std::move(PageManager::Create(cache_options_).value());
    return Replay(requests, options_, *cache_);
  }

  ReplayReport Replayed(const std::vector<Request>& requests) {
    const absl::StatusOr<ReplayReport> report = TryReplay(requests);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return {};
    EXPECT_EQ(cache_->Inconsistency(), "");
    const PageCounts counts = cache_->counts();
    EXPECT_EQ(counts.used(), 0);
    EXPECT_EQ(counts.sequences, 0);
    EXPECT_EQ(counts.host_free, counts.host_pages);
    EXPECT_EQ(report->done + report->rejected, report->requests);
    EXPECT_EQ(report->copies, 0);
    int64_t most = 0;
    for (const ReplayReport::Sample& sample : report->samples) most = std::max(most, sample.used);
    EXPECT_EQ(most, report->peak.pages);
    EXPECT_LE(report->samples.size(), ReplayReport::kMostSamples);
    return *report;
  }

  PageManager::Options cache_options_;
  ReplayOptions options_;
  std::unique_ptr<PageManager> cache_;
};

// Tokens after the three steps: 6, 7, 8, in two pages of 4.
TEST_F(ReplayTest, OneRequest) {
  const ReplayReport r = Replayed({{0, 5, 3}});
  EXPECT_EQ(r.steps, 3);
  EXPECT_EQ(r.seconds, 3);
  EXPECT_EQ(r.prompt_tokens, 5);
  EXPECT_EQ(r.generated_tokens, 3);
  EXPECT_EQ(r.HitRate(), 0);
  EXPECT_EQ(r.average.sequences, 1);
  EXPECT_EQ(r.average.pages, 2);
  EXPECT_EQ(r.average.empty, 1);
  EXPECT_EQ(r.average.tokens, 7);
  EXPECT_EQ(r.peak.empty, 2);
  EXPECT_EQ(r.longest, 8);
  EXPECT_EQ(r.Waste(r.average), 1. / 8);
  EXPECT_EQ(r.ContiguousWaste(r.average), 1. / 8);
  EXPECT_EQ(r.ContiguousWaste(r.crowd), 2. / 8);
  EXPECT_EQ(r.TimesMore(), 1);
}

// The second request is admitted in the second step. It finds the two pages of the prefix.
//
//   step  tokens  pages  empty slots
//   1     10      3      2
//   2     11+10   2+1+1  1+2
//   3     11      3      1
TEST_F(ReplayTest, ASharedPrefix) {
  const std::vector<Request> requests = {{1, 9, 2, 0, 8}, {0, 9, 2, 0, 8}};
  const ReplayReport r = Replayed(requests);
  EXPECT_EQ(r.steps, 3);
  EXPECT_EQ(r.prompt_tokens, 18);
  EXPECT_EQ(r.cached_tokens, 8);
  EXPECT_DOUBLE_EQ(r.average.sequences, 4. / 3);
  EXPECT_DOUBLE_EQ(r.average.pages, 10. / 3);
  EXPECT_DOUBLE_EQ(r.average.empty, 2);
  EXPECT_DOUBLE_EQ(r.average.tokens, (10 + 21 + 11) / 3.);
  EXPECT_EQ(r.peak.pages, 4);
  EXPECT_EQ(r.peak.empty, 3);
  EXPECT_EQ(r.peak.tokens, 21);
  EXPECT_EQ(r.crowd.sequences, 2);
  EXPECT_DOUBLE_EQ(r.TimesMore(), (4 * 11) / (10. * 4));
  EXPECT_DOUBLE_EQ(r.ContiguousWaste(r.crowd), 1. / 22);

  cache_options_.prefix_caching = false;
  const ReplayReport without = Replayed(requests);
  EXPECT_EQ(without.cached_tokens, 0);
  EXPECT_EQ(without.peak.pages, 6);
}

TEST_F(ReplayTest, TheLastTokenOfAContextIsNotTakenFromTheCache) {
  const ReplayReport r = Replayed({{0, 8, 0, 0, 8}, {0, 8, 0, 0, 8}});
  EXPECT_EQ(r.steps, 1);
  EXPECT_EQ(r.cached_tokens, 4);
  EXPECT_EQ(r.peak.pages, 2);  // the second page was computed again, and given back
}

TEST_F(ReplayTest, RowsLimitWhatRuns) {
  cache_options_.sequences = 1;
  const ReplayReport r = Replayed({{0, 3, 2}, {0, 3, 2}});
  EXPECT_EQ(r.steps, 4);
  EXPECT_EQ(r.crowd.sequences, 1);
}

TEST_F(ReplayTest, TimeWithoutRequestsIsSkipped) {
  const ReplayReport r = Replayed({{1000, 3, 1}, {1100.5, 3, 1}});
  EXPECT_EQ(r.steps, 2);
  EXPECT_EQ(r.seconds, 101.5);
  EXPECT_EQ(r.average.pages, 1);
  ASSERT_EQ(r.sample_seconds, 1);
  ASSERT_EQ(r.samples.size(), 102u);
  EXPECT_EQ(r.samples[0].used, 1);
  EXPECT_EQ(r.samples[1].used, 0);
  EXPECT_EQ(r.samples[1].evictable, 1);
  EXPECT_EQ(r.samples[100].running, 0);
  EXPECT_EQ(r.samples[101].running, 1);
}

// Pages of 2 tokens, 4 in all.
//
//   step  first      second
//   1     3 tokens   3 tokens
//   2     4          4
//   3     5          is preempted; one of its pages is evicted
//   4     6, done    needs 2 pages; one is cached, none is left for the other
//   5                5; it took pages that were the first one's, two evictions
//   6                6, done
class PreemptionTest : public ReplayTest {
 protected:
  PreemptionTest() {
    cache_options_.pages = 4;
    cache_options_.page = 2;
  }

  ReplayReport TwoRequests() {
    ReplayReport r = Replayed({{0, 2, 4}, {0, 2, 4}});
    EXPECT_EQ(r.steps, 6);
    EXPECT_EQ(r.generated_tokens, 8);
    EXPECT_EQ(r.evictions, 3);
    EXPECT_DOUBLE_EQ(r.average.sequences, 8 / 6.);
    EXPECT_DOUBLE_EQ(r.average.pages, (4 + 4 + 3 + 3 + 3 + 3) / 6.);
    EXPECT_DOUBLE_EQ(r.average.empty, (2 + 0 + 1 + 0 + 1 + 0) / 6.);
    EXPECT_DOUBLE_EQ(r.average.tokens, (6 + 8 + 5 + 6 + 5 + 6) / 6.);
    EXPECT_EQ(r.peak.pages, 4);
    EXPECT_EQ(r.peak.empty, 2);
    return r;
  }
};

TEST_F(PreemptionTest, WithoutAHostItIsRecomputed) {
  const ReplayReport r = TwoRequests();
  EXPECT_EQ(r.recomputed, 1);
  EXPECT_EQ(r.swapped, 0);
  EXPECT_EQ(r.prompt_tokens, 2 + 2 + 4);
  EXPECT_EQ(r.cached_tokens, 2);
}

TEST_F(PreemptionTest, WithAHostItIsSwapped) {
  cache_options_.host_pages = 2;
  const ReplayReport r = TwoRequests();
  EXPECT_EQ(r.recomputed, 0);
  EXPECT_EQ(r.swapped, 1);
  EXPECT_EQ(r.pages_to_host, 2);
  EXPECT_EQ(r.pages_from_host, 1);  // the other one was still there
  EXPECT_EQ(r.prompt_tokens, 4);
}

TEST_F(PreemptionTest, AHostThatIsTooSmallIsNotUsed) {
  cache_options_.host_pages = 1;
  EXPECT_EQ(TwoRequests().recomputed, 1);
}

TEST_F(PreemptionTest, WhatWasPreemptedComesBeforeNewRequests) {
  // The third one has room in step 4, where the second one has none.
  for (const int64_t host : {0, 2}) {
    cache_options_.host_pages = host;
    const ReplayReport r = Replayed({{0, 2, 4}, {0, 2, 4}, {2.5, 1, 1}});
    EXPECT_EQ(r.recomputed + r.swapped, 1);
    EXPECT_EQ(r.crowd.sequences, 2);
    EXPECT_EQ(r.steps, 6);
    EXPECT_EQ(r.samples[3].running, 1);
    EXPECT_EQ(r.samples[4].running, 2);
  }
}

TEST_F(PreemptionTest, WhatNeverFitsIsRejected) {
  options_.longest = 8;
  const ReplayReport r = Replayed({{0, 2, 2}, {0, 7, 2}, {0, 1 << 29, 1 << 29}});
  EXPECT_EQ(r.done, 1);
  EXPECT_EQ(r.rejected, 2);
  EXPECT_EQ(r.first_rejection, "request 1: 9 tokens need 5 pages, the pool has 4");
  EXPECT_EQ(r.average.tokens, 3.5);
  EXPECT_EQ(r.ContiguousSlots(r.peak), 8);

  const ReplayReport none = Replayed({{0, 9, 0}});
  EXPECT_EQ(none.steps, 0);
  EXPECT_EQ(none.seconds, 0);
  EXPECT_EQ(none.HitRate(), 0);
  EXPECT_EQ(none.TimesMore(), 0);
}

TEST_F(ReplayTest, BadArguments) {
  EXPECT_EQ(TryReplay({{0, 5, 3}, {0, 0, 3}}).status().message(),
            "request 1: context: 0 is not in [1, 2147483647]");
  EXPECT_EQ(TryReplay({{0, 5, 3, -1, 2}}).status().message(),
            "request 0: prefix_tokens: 2 is not in [0, 0]");
  options_.longest = 7;
  EXPECT_EQ(TryReplay({{0, 5, 3}}).status().message(),
            "longest: 7 is less than the 8 tokens of the longest request");
  options_.step = 0;
  EXPECT_EQ(TryReplay({{0, 5, 3}}).status().message(), "step: 0 is not in [1e-6, 1e6]");
}

TEST_F(ReplayTest, ItStopsWhenItIsTold) {
  std::vector<int64_t> done;
  options_.progress = [&](int64_t n) { done.push_back(n); };
  options_.stopped = [&] { return done.size() == 2; };
  const ReplayReport r = TryReplay({{0, 1, 200}, {0, 1, 300}}).value();
  EXPECT_TRUE(r.stopped);
  EXPECT_EQ(r.steps, 256);
  EXPECT_THAT(done, testing::ElementsAre(0, 1));
}

// docs/replay.md explains the formulas. All lengths are the same, and multiples of the page but for
// the prefix, of which 8 pages are full.
TEST_F(ReplayTest, AGeneratedTraceIsAsAHandCalculationPredicts) {
  constexpr double kRequests = 500, kContext = 256, kGenerated = 64, kPage = 16, kShared = 128;
  TraceOptions trace;
  trace.requests = 500;
  trace.rate = 20;
  trace.context = {256, 256};
  trace.generated = {64, 64};
  trace.prefixes = 1;
  trace.prefix_tokens = 130;
  cache_options_.pages = 10'000;
  cache_options_.page = 16;
  options_.step = 0.02;
  const ReplayReport r = Replayed(GenerateTrace(trace).value());
  EXPECT_DOUBLE_EQ(r.HitRate(), (kRequests - 1) * kShared / (kRequests * kContext));
  EXPECT_EQ(r.evictions, 0);
  const double running = kRequests * kGenerated / static_cast<double>(r.steps);
  EXPECT_DOUBLE_EQ(r.average.sequences, running);
  EXPECT_NEAR(running, 20 * kGenerated * 0.02, 3);  // Little's law
  EXPECT_DOUBLE_EQ(r.average.empty, running * (kPage - 1) / 2);
  const double own = (kContext - kShared) / kPage + (kGenerated / kPage + 1) / 2;
  EXPECT_DOUBLE_EQ(r.average.pages, running * own + kShared / kPage);
  EXPECT_NEAR(r.ContiguousWaste(r.average),
              1 - (kContext + (kGenerated + 1) / 2) / (kContext + kGenerated), 1e-12);

  // With 4 prefixes, the first request of each finds nothing.
  trace.prefixes = 4;
  EXPECT_DOUBLE_EQ(Replayed(GenerateTrace(trace).value()).HitRate(),
                   (kRequests - 4) * kShared / (kRequests * kContext));
}

TEST_F(ReplayTest, AnyTraceComesToItsEnd) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % (most - least + 1));
  };
  ReplayReport sum;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    cache_options_.pages = draw(1, 60);
    cache_options_.page = draw(1, 8);
    cache_options_.host_pages = draw(0, 2) * draw(0, 40);
    cache_options_.sequences = draw(1, 12);
    cache_options_.prefix_caching = draw(0, 3) > 0;
    std::vector<Request> requests(draw(1, 60));
    int64_t generated = 0, prompts = 0;
    for (Request& r : requests) {
      r.arrival = static_cast<double>(draw(0, 200)) / 3;
      r.context = draw(1, 60);
      r.generated = draw(0, 40);
      r.prefix = static_cast<int32_t>(draw(-1, 2));
      if (r.prefix >= 0) r.prefix_tokens = draw(0, r.context);
      const int64_t page = cache_options_.page;
      if ((r.context + r.generated + page - 1) / page > cache_options_.pages) continue;
      generated += r.generated;
      prompts += r.context;
    }
    const ReplayReport r = Replayed(requests);
    EXPECT_EQ(r.generated_tokens, generated);
    EXPECT_GE(r.prompt_tokens, prompts);
    EXPECT_TRUE(r.recomputed > 0 || r.prompt_tokens == prompts);
    EXPECT_LE(r.cached_tokens, r.prompt_tokens);
    EXPECT_TRUE(cache_options_.prefix_caching || r.cached_tokens == 0);
    EXPECT_LE(r.peak.pages, static_cast<double>(r.pages));
    EXPECT_LE(r.crowd.sequences, static_cast<double>(cache_options_.sequences));
    EXPECT_LE(r.average.pages, r.peak.pages);
    for (const Load& load : {r.average, r.peak, r.crowd}) {
      EXPECT_LE(load.empty, load.sequences * static_cast<double>(r.page - 1));
      EXPECT_LE(load.tokens, r.ContiguousSlots(load));
      // Without sharing, the pages hold each token once.
      if (!cache_options_.prefix_caching) {
        EXPECT_NEAR(r.PagedSlots(load), load.tokens + load.empty, 1e-9);
      }
    }
    sum.swapped += r.swapped;
    sum.recomputed += r.recomputed;
    sum.rejected += r.rejected;
    sum.evictions += r.evictions;
    sum.cached_tokens += r.cached_tokens;
    sum.pages_from_host += r.pages_from_host;
  }
  // The test is not vacuous.
  EXPECT_GT(sum.swapped, 100);
  EXPECT_GT(sum.recomputed, 100);
  EXPECT_GT(sum.rejected, 100);
  EXPECT_GT(sum.evictions, 1000);
  EXPECT_GT(sum.cached_tokens, 1000);
  EXPECT_GT(sum.pages_from_host, 100);
}

}  // namespace
}  // namespace attnlab::paged
