// On a machine with a GPU: tests the checks of streams, graphs and allocations. A correct kernel
// passes them. Each kernel of gpu_mutants.h is rejected by the checks that exist for its mistake.
#include <memory>
#include <string>
#include <vector>

#include "attention/conformance/conformance.h"
#include "attention/conformance/mutants/gpu_mutants.h"
#include "attention/conformance/problems.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

using ::testing::HasSubstr;

// A check's verdict on the kernel, at the first problem that it rejects.
struct Verdict {
  int ran = 0;
  std::string message;
};

Verdict VerdictOf(const std::string& name, const Kernel& kernel) {
  Verdict verdict;
  for (const Check& check : Checks()) {
    if (check.name != name) continue;
    for (const Case& c : ReducedCases()) {
      if (!c.with_lse || c.problem.sq == 0) continue;
      const absl::Status s = check.run({&kernel, Device::Cuda(0)}, c);
      if (s.code() == absl::StatusCode::kUnimplemented) continue;
      ++verdict.ran;
      if (s.ok()) continue;
      verdict.message = std::string(s.message());
      return verdict;
    }
  }
  return verdict;
}

TEST(SoundGpuKernelTest, PassesTheChecksOfGpus) {
  const std::unique_ptr<const Kernel> kernel = SoundGpuKernel();
  int checks = 0;
  for (const Check& check : Checks()) {
    if (check.where == Where::kAnywhere || check.where == Where::kWithIntermediates) continue;
    ++checks;
    const Verdict verdict = VerdictOf(check.name, *kernel);
    EXPECT_EQ(verdict.message, "") << check.name;
    EXPECT_GE(verdict.ran, 3) << check.name;
  }
  EXPECT_EQ(checks, 3);
}

class GpuMutationTest : public ::testing::TestWithParam<size_t> {};

TEST_P(GpuMutationTest, IsRejected) {
  const std::vector<GpuMutant> mutants = GpuMutants();
  const GpuMutant& mutant = mutants[GetParam()];
  for (const std::string& check : mutant.checks) {
    const Verdict verdict = VerdictOf(check, *mutant.kernel);
    EXPECT_NE(verdict.message, "") << check << ": none of " << verdict.ran << " cases shows it";
    if (check != mutant.checks[0]) continue;
    EXPECT_THAT(verdict.message, HasSubstr(mutant.message));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuMutationTest, ::testing::Range<size_t>(0, GpuMutants().size()),
                         [](const ::testing::TestParamInfo<size_t>& info) {
                           return GpuMutants()[info.param].name;
                         });

}  // namespace
}  // namespace attnlab::conformance
