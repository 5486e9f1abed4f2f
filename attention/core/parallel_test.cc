#include "attention/core/parallel.h"

#include <atomic>
#include <vector>

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

}  // namespace
}  // namespace attnlab
