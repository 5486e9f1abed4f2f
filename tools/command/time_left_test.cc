#include "tools/command/time_left.h"

#include <unistd.h>

#include <chrono>

#include "attention/attention.h"
#include "attention/core/problem.h"
#include "attention/oracle/trial.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::command {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

TEST(TimeLeftTest, IsCorrectedByWhatTheFirstStepsTook) {
  TimeLeft left({2, 10, 5});
  EXPECT_THAT(left.Seconds(0), AllOf(Ge(16), Le(17)));
  usleep(100000);
  EXPECT_THAT(left.Seconds(0), Le(16.91));
  // 0.1 s instead of 2: the rest goes 20 times as fast, too.
  EXPECT_THAT(left.Seconds(1), AllOf(Ge(0.7), Le(2)));
  EXPECT_EQ(TimeLeft({}).Seconds(0), 0);
}

TEST(TimeLeftTest, NoStepTakesMuchLonger) {
  TimeLeft left({1.01, 100}, /*most_extra=*/0.5);
  usleep(1300000);
  EXPECT_THAT(left.Seconds(1), AllOf(Ge(100), Le(100.5)));
}

TEST(TimeLeftTest, ShortStepsSayLittle) {
  TimeLeft left({0.5, 100});
  usleep(50000);
  EXPECT_THAT(left.Seconds(1), AllOf(Ge(99), Le(100)));
}

// Seconds of the second call.
double Call(const Plan& plan) {
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(plan, {}, /*with_lse=*/false);
  double seconds = 0;
  for (int i = 0; i < 2 && trial.ok() && trial->Prepare().ok(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(trial->Start(nullptr).ok());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return seconds;
}

// The announced time of one call is within a factor of 1.5 of what it takes. On a busy machine the
// call is timed again.
TEST(CallTimesTest, HoldsWithinAFactorOfOneAndAHalf) {
  const AttentionProblem large = *AttentionProblem::Parse("b=2,hq=4,sq=1024,d=64,dtype=fp32");
  const AttentionProblem small = *AttentionProblem::Parse("b=2,hq=4,sq=512,d=64,dtype=fp32");
  for (const char* kernel : {"reference", "cpu"}) {
    double factor = 0;
    for (int i = 0; i < 10; ++i) {
      const Plan plan = *MakePlan(large, Device::Cpu(), kernel);
      const Plan other = *MakePlan(small, Device::Cpu(), kernel);
      CallTimes times({other, plan});
      const double expected = times.Seconds(plan);
      EXPECT_NEAR(times.Seconds(other) * 4, expected, 1e-6 * expected);
      factor = expected / Call(plan);
      if (factor > 1 / 1.5 && factor < 1.5) break;
    }
    EXPECT_GT(factor, 1 / 1.5) << kernel;
    EXPECT_LT(factor, 1.5) << kernel;
  }
}

}  // namespace
}  // namespace attnlab::command
