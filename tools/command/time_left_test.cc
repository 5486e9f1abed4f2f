#include "tools/command/time_left.h"

#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/bench/sleeping_kernel.h"
#include "attention/core/problem.h"
#include "attention/cuda/machine.h"
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

TEST(CallTimesTest, HoldsWithinAFactorOfOneAndAHalf) {
  const bench::SleepingKernel kernel;
  std::vector<Plan> plans;
  for (const char* line : {"b=2,hq=4,sq=512,d=64,dtype=fp32", "b=2,hq=4,sq=2048,d=64,dtype=fp32"}) {
    absl::StatusOr<Plan> plan =
        MakePlan(kernel, *AttentionProblem::Parse(line), *InfoOf(Device::Cpu()), {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  CallTimes times(plans);
  for (const Plan& plan : plans) {
    const double seconds = bench::SleepingKernel::Seconds(plan.problem);
    EXPECT_THAT(times.Seconds(plan), AllOf(Ge(seconds), Le(1.5 * seconds)));
  }
}

// On a machine that stalls for a while.
class StallingKernel : public bench::SleepingKernel {
 public:
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo&,
                                                          const LaunchConfig&) const override {
    return PreparedAs(/*workspace_bytes=*/0, [this, p](const AttentionTensors&, const Launch&) {
      usleep(static_cast<useconds_t>(1e6 * (stalls ? 10 : 1) * Seconds(p)));
      return absl::OkStatus();
    });
  }
  bool stalls = true;
};

TEST(CallTimesTest, TheShortestMeasurementCounts) {
  StallingKernel kernel;
  const AttentionProblem problem = *AttentionProblem::Parse("hq=4,sq=1024,d=64,dtype=fp32");
  const absl::StatusOr<Plan> plan = MakePlan(kernel, problem, *InfoOf(Device::Cpu()), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  CallTimes times({*plan});
  const double seconds = bench::SleepingKernel::Seconds(problem);
  EXPECT_THAT(times.Seconds(*plan), Ge(9 * seconds));
  kernel.stalls = false;
  EXPECT_THAT(times.Seconds(*plan), Ge(9 * seconds));  // not measured again
  EXPECT_THAT(times.Seconds(*plan, /*measurements=*/2), AllOf(Ge(seconds), Le(1.5 * seconds)));
  kernel.stalls = true;
  EXPECT_THAT(times.Seconds(*plan, /*measurements=*/3), AllOf(Ge(seconds), Le(1.5 * seconds)));
}

}  // namespace
}  // namespace attnlab::command
