// Needs a GPU: no kernel spills registers, in its default configuration or in its variants. Kernels
// of libraries may.
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/bench/rotated_inputs.h"
#include "attention/bench/timed_kernel.h"
#include "attention/conformance/plans.h"
#include "attention/cuda/memory.h"
#include "gtest/gtest.h"
#include "profiling/launch_facts.h"

namespace attnlab::profiling {
namespace {

// Returns how many kernels of this project the plan launches.
int ExpectNoSpills(const Plan& plan) {
  SCOPED_TRACE(absl::StrCat(conformance::NameOf(plan), " on ", plan.problem.ToString()));
  absl::StatusOr<bench::RotatedInputs> inputs = bench::RotatedInputs::Make(
      plan.problem, plan.device, /*seed=*/0, /*with_lse=*/true, /*memory_bytes=*/1);
  absl::StatusOr<Buffer> workspace = bench::SharedWorkspace({plan});
  EXPECT_TRUE(inputs.ok() && workspace.ok()) << inputs.status() << ", " << workspace.status();
  if (!inputs.ok() || !workspace.ok()) return 0;
  const absl::StatusOr<std::vector<LaunchFacts>> launches = FactsOf(0, [&](void* stream) {
    return Forward(plan, inputs->Next(), {workspace->data(), workspace->bytes()}, stream);
  });
  EXPECT_TRUE(launches.ok()) << launches.status();
  if (!launches.ok()) return 0;
  int own = 0;
  for (const LaunchFacts& launch : *launches) {
    if (!absl::StrContains(launch.name, "attnlab::")) continue;
    ++own;
    EXPECT_EQ(launch.local_bytes, 0) << launch.name;
  }
  return own;
}

std::vector<std::string> ProblemsOf(const char* dtype) {
  std::vector<std::string> problems;
  for (const int d : {32, 64, 96, 128, 192, 256}) {
    // A long query, for large tiles, and a short one.
    for (const int sq : {4096, 16}) {
      problems.push_back(absl::StrCat("hq=2,sq=", sq, ",d=", d, ",mask=causal,dtype=", dtype));
    }
  }
  return problems;
}

class SpillsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SpillsTest, NothingIsSpilled) {
  int launches = 0;
  for (const std::string& problem : ProblemsOf(GetParam())) {
    const auto plans = conformance::PlansOfAllKernels(problem, /*with_variants=*/true);
    ASSERT_TRUE(plans.ok()) << plans.status();
    for (const Plan& plan : *plans) launches += ExpectNoSpills(plan);
  }
  EXPECT_GT(launches, 0);
}

constexpr const char* kDtypes[] = {"fp32", "fp16", "bf16"};
INSTANTIATE_TEST_SUITE_P(Dtypes, SpillsTest, ::testing::ValuesIn(kDtypes));

// A kernel that declines all problems would otherwise pass untested.
TEST(SpillsTestProblems, EveryKernelAndVariantDoesSome) {
  std::vector<std::string> problems;
  for (const char* dtype : kDtypes) {
    const std::vector<std::string> of_dtype = ProblemsOf(dtype);
    problems.insert(problems.end(), of_dtype.begin(), of_dtype.end());
  }
  const auto never = conformance::NeverPlanned(problems, /*with_variants=*/true);
  ASSERT_TRUE(never.ok()) << never.status();
  EXPECT_EQ(*never, std::vector<std::string>());
}

}  // namespace
}  // namespace attnlab::profiling
