#include "attention/core/parallel.h"

#include <atomic>
#include <vector>

#include "attention/core/stop.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(ParallelForTest, CallsEveryIndexOnce) {
  for (int threads : {-1, 0, 1, 2, 7, 1000000}) {
    for (int64_t count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> calls(count);
      ParallelFor(count, threads, [&](int64_t i, int) { ++calls[i]; });
      for (const auto& n : calls) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ParallelForTest, NoTwoCallsShareAWorker) {
  constexpr int kThreads = 4;
  std::vector<std::atomic<int>> busy(kThreads);
  std::atomic<bool> shared = false;
  ParallelFor(1000, kThreads, [&](int64_t, int worker) {
    ASSERT_GE(worker, 0);
    ASSERT_LT(worker, kThreads);
    if (++busy[worker] != 1) shared = true;
    --busy[worker];
  });
  EXPECT_FALSE(shared);
}

TEST(ParallelForTest, StopsHandingOutIndices) {
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  StopWhen(&stop);
  ParallelFor(1000, 2, [&](int64_t, int) {
    ++calls;
    stop = true;
  });
  EXPECT_LE(calls, 2);  // one a thread
  StopWhen(nullptr);
  ParallelFor(10, 2, [&](int64_t, int) { ++calls; });
  EXPECT_GE(calls, 10);
}

TEST(ParallelForTest, CountsThreads) {
  TakeMostThreads();
  EXPECT_EQ(TakeMostThreads(), 0);
  ParallelFor(100, 2, [](int64_t, int) {});
  ParallelFor(100, 1, [](int64_t, int) {});
  EXPECT_EQ(TakeMostThreads(), 2);
  EXPECT_EQ(TakeMostThreads(), 0);
}

}  // namespace
}  // namespace attnlab
