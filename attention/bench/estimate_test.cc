#include "attention/bench/estimate.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/bench/sleeping_kernel.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/registry.h"
#include "attention/core/tensors.h"
#include "gtest/gtest.h"

namespace attnlab::bench {
namespace {

Plan PlanOf(const char* line) {
  return *MakePlan(*AttentionProblem::Parse(line), Device::Cpu(), "reference");
}

TEST(EstimateTest, GrowsWithTheProblem) {
  // 27 ms for 2048 tokens, the first part that is long enough, and 0.43 s for the problem.
  const SleepingKernel kernel;
  Plan plan = PlanOf("b=4,hq=1,sq=4096,d=32,dtype=fp32");
  plan.kernel = &kernel;
  const double truth = SleepingKernel::Seconds(plan.problem);
  const auto estimate = EstimateSeconds(plan);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_GT(*estimate, 0.99 * truth);
  EXPECT_LT(*estimate, 1.5 * truth);
}

TEST(EstimateTest, EmptyProblemsEnd) {
  for (const char* line : {"hq=1,sq=0,d=32,dtype=fp32", "b=7,hq=1,sq=300,skv=0,d=8",
                           "b=5,hq=2,sq=1,skv=3,d=8,lens=packed"}) {
    const auto seconds = EstimateSeconds(PlanOf(line));
    ASSERT_TRUE(seconds.ok()) << line << ": " << seconds.status();
    EXPECT_GE(*seconds, 0);
    EXPECT_LT(*seconds, 1);
  }
}

TEST(EstimateTest, TheLaunchIsNotScaledUp) {
  // Like a GPU with launch overhead: 200 us plus a time per FLOP.
  const auto seconds_of = [](const AttentionProblem& p) -> absl::StatusOr<double> {
    return 200e-6 + 1e-11 * CompulsoryTraffic(p).flops;
  };
  const AttentionProblem problem = *AttentionProblem::Parse("b=16,hq=1,sq=4096,d=32");
  const auto seconds = EstimateSeconds(problem, seconds_of);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  const double truth = *seconds_of(problem);  // 0.34; from the first part alone it would be 1.1
  EXPECT_GT(*seconds, 0.9 * truth);
  EXPECT_LT(*seconds, 1.5 * truth);
}

TEST(EstimateTest, AKernelThatFailsHasNoEstimate) {
  class Failing : public Kernel {
   public:
    const KernelTraits& traits() const override { return traits_; }
    absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem&,
                                                            const DeviceInfo&,
                                                            const LaunchConfig&) const override {
      return PreparedAs(/*workspace_bytes=*/0, [](const AttentionTensors&, const Launch&) {
        return absl::InternalError("out of luck");
      });
    }

   private:
    KernelTraits traits_;
  } kernel;
  Plan plan = PlanOf("hq=1,sq=4,d=8");
  plan.kernel = &kernel;
  EXPECT_EQ(EstimateSeconds(plan).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace attnlab::bench
