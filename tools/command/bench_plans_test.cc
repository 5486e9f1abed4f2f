#include "tools/command/bench_plans.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/attention.h"
#include "attention/core/problem.h"
#include "attention/cuda/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command/selection.h"

namespace attnlab::command {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

AttentionProblem Problem(const char* line) { return *AttentionProblem::Parse(line); }

BenchSelection Select(const std::string& names, const std::string& device = "cpu") {
  BenchSelection selection;
  selection.names = names;
  selection.kernels = *KernelsOf(names);
  selection.configs.resize(1);
  selection.device = device;
  return selection;
}

std::vector<std::string> Names(const std::vector<Plan>& plans) {
  std::vector<std::string> names;
  for (const Plan& plan : plans) names.push_back(plan.kernel->traits().name);
  return names;
}

std::string Text(const LeftOut& left_out) {
  std::ostringstream out;
  left_out.Print(out);
  return out.str();
}

constexpr char kSmall[] = "hq=1,sq=4,d=64,dtype=fp32";

TEST(BenchPlansTest, AReasonIsPrintedOnce) {
  LeftOut left_out("attnlab bench");
  EXPECT_THAT(Text(left_out), IsEmpty());
  left_out.Add(absl::InvalidArgumentError("cpu: no"), "b=1");
  left_out.Add(absl::InvalidArgumentError("cpu: no"), "b=2");
  left_out.Add(absl::UnavailableError("fa2: no GPU"), "");
  left_out.Add(absl::UnavailableError("fa2: no GPU"), "");
  EXPECT_EQ(Text(left_out),
            "attnlab bench: cpu: no (b=1 and 1 more)\nattnlab bench: fa2: no GPU\n");
  EXPECT_FALSE(left_out.blame().Flags());
}

TEST(BenchPlansTest, AllAreThoseOfTheDevice) {
  LeftOut left_out("attnlab bench");
  const auto plans = PlansOf(Problem(kSmall), Select("all"), &left_out);
  ASSERT_TRUE(plans.ok()) << plans.status();
  // picky declines the problem; via_host runs on GPUs and is not asked.
  EXPECT_THAT(Names(*plans),
              ElementsAre("reference", "ctrl_c", "failing", "tunable", "wrong", "cpu"));
  EXPECT_THAT(Text(left_out), HasSubstr("picky: dtype: is not fp16"));
  EXPECT_THAT(Text(left_out), Not(HasSubstr("via_host")));
}

TEST(BenchPlansTest, OneThatIsNamedSaysWhyItIsNotTimed) {
  LeftOut left_out("attnlab bench");
  const auto plans = PlansOf(Problem(kSmall), Select("all,via_host"), &left_out);
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_THAT(Text(left_out), HasSubstr("via_host: runs on CUDA devices, not on cpu"));
}

TEST(BenchPlansTest, EachKernelIsPlannedWhereItRuns) {
  LeftOut left_out("attnlab bench");
  const auto plans = PlansOf(Problem(kSmall), Select("cpu,via_host", "auto"), &left_out);
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_FALSE(plans->empty());
  EXPECT_EQ((*plans)[0].device.device, Device::Cpu());
  if (!CudaInfo().ok()) {
    EXPECT_THAT(Names(*plans), ElementsAre("cpu"));
    EXPECT_THAT(Text(left_out), HasSubstr("attnlab bench: via_host: runs on GPUs; "));
    return;
  }
  EXPECT_THAT(Names(*plans), ElementsAre("cpu", "via_host"));
  EXPECT_EQ((*plans)[1].device.device, Device::Cuda(0));
  EXPECT_THAT(Text(left_out), IsEmpty());
}

TEST(BenchPlansTest, EveryConfigurationIsAPlan) {
  BenchSelection selection = Select("cpu,reference");
  selection.configs = *ConfigsOf({"tile_kv=32..64,tile_q=0/16"});
  LeftOut left_out("attnlab bench");
  const auto plans = PlansOf(Problem(kSmall), selection, &left_out);
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_THAT(Names(*plans), ElementsAre("cpu", "cpu"));
  EXPECT_EQ((*plans)[0].config.ToString(), "tile_kv=32,tile_q=16");
  EXPECT_EQ((*plans)[1].config.ToString(), "tile_kv=64,tile_q=16");
  // The error comes from the kernel: key, value, limits.
  EXPECT_THAT(Text(left_out),
              HasSubstr("cpu: config: tile_q: \"0\" is not an integer in 1..4096 (b=1,"));
  EXPECT_THAT(Text(left_out), HasSubstr("reference: config: unknown key \"tile_kv\"; this kernel "
                                        "has none (b=1,hq=1,hkv=1,sq=4,skv=4,d=64,dtype=fp32,"
                                        "mask=none and 3 more)"));
}

TEST(BenchPlansTest, ProblemsWithoutInputsHaveNoPlans) {
  LeftOut left_out("attnlab bench");
  const auto plans =
      PlansOf(Problem("hq=1,sq=1,skv=2147483647,d=1,lens=packed"), Select("cpu"), &left_out);
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_THAT(*plans, IsEmpty());
  EXPECT_THAT(Text(left_out), HasSubstr("lens: 2147483647 packed tokens are more than"));
  EXPECT_TRUE(left_out.blame().Flags());
}

TEST(BenchPlansTest, ADeviceThatIsNotThereIsAnError) {
  LeftOut left_out("attnlab bench");
  EXPECT_EQ(PlansOf(Problem(kSmall), Select("cpu", "cuda:99"), &left_out).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(BenchPlansTest, TheOracleIsLeftOutWhereItIsSlow) {
  const AttentionProblem slow = Problem("b=64,hq=16,sq=4096,d=128,dtype=fp32");
  const auto kept = [&slow](const char* names, const char* baseline, LeftOut* left_out) {
    BenchSelection selection = Select(names);
    selection.baseline = baseline;
    // PlansOf() would check this machine's memory.
    std::vector<Plan> plans;
    for (const Kernel* kernel : selection.kernels) {
      const std::string& name = kernel->traits().name;
      if (name != "reference" && name != "cpu" && name != "failing") continue;
      plans.push_back(*MakePlan(slow, Device::Cpu(), name));
    }
    CallTimes times(plans);
    LeaveOutSlow(selection, &times, &plans, left_out);
    return Names(plans);
  };
  LeftOut left_out("attnlab bench");
  EXPECT_THAT(kept("all", "", &left_out), ElementsAre("failing", "cpu"));
  EXPECT_THAT(Text(left_out), HasSubstr("attnlab bench: reference: left out of b=64,"));
  EXPECT_THAT(Text(left_out), HasSubstr(" a call; --kernel=all,reference times it anyway"));
  EXPECT_FALSE(left_out.blame().Flags());
  LeftOut nothing("attnlab bench");
  EXPECT_THAT(kept("reference", "", &nothing), ElementsAre("reference"));
  EXPECT_THAT(kept("all,reference", "", &nothing), ElementsAre("reference", "failing", "cpu"));
  EXPECT_THAT(kept("all", "reference", &nothing), ElementsAre("reference", "failing", "cpu"));
  EXPECT_THAT(Text(nothing), IsEmpty());
}

TEST(BenchPlansTest, TheCpuIsLeftOutWhereItIsSlowBesideAGpu) {
  const AttentionProblem slow = Problem("b=64,hq=16,sq=65536,d=128,dtype=fp32");
  const auto kept = [&slow](const char* names, bool with_gpu, LeftOut* left_out) {
    std::vector<Plan> plans = {*MakePlan(slow, Device::Cpu(), "cpu")};
    if (with_gpu) {
      plans.push_back(plans[0]);
      plans[1].kernel = KernelsOf("via_host")->front();
      plans[1].device.device = Device::Cuda(0);
    }
    CallTimes times(plans);
    LeaveOutSlow(Select(names), &times, &plans, left_out);
    return Names(plans);
  };
  LeftOut left_out("attnlab bench"), nothing("attnlab bench");
  EXPECT_THAT(kept("all", true, &left_out), ElementsAre("via_host"));
  EXPECT_THAT(Text(left_out), HasSubstr("attnlab bench: cpu: left out of b=64,"));
  EXPECT_THAT(kept("cpu,via_host", true, &nothing), ElementsAre("cpu", "via_host"));
  EXPECT_THAT(kept("all", false, &nothing), ElementsAre("cpu"));
  EXPECT_THAT(Text(nothing), IsEmpty());
}

TEST(BenchPlansTest, TheDefaultProblemNeedsNoPatience) {
  const auto problem = DefaultProblem(DType::kFloat16, Select("reference,cpu,failing"));
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->dtype, DType::kFloat16);
  EXPECT_GE(problem->sq, 256);
  EXPECT_LE(problem->sq, 4096);
  // Without the slower kernel, the problem is at least as long.
  const auto longer = DefaultProblem(DType::kFloat16, Select("cpu"));
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_GE(longer->sq, problem->sq);
}

}  // namespace
}  // namespace attnlab::command
