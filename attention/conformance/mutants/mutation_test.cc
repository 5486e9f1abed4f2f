// Tests the conformance suite. A correct kernel passes every check. Each kernel of mutants.h is
// rejected by the check that exists for its mistake, with a message that says what is wrong.
#include <memory>
#include <string>
#include <vector>

#include "attention/conformance/conformance.h"
#include "attention/conformance/mutants/mutants.h"
#include "attention/conformance/problems.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

using ::testing::HasSubstr;

// Whether a case has little work. These kernels are slow, and small problems show the same
// mistakes.
bool IsSmall(const Case& c) {
  const AttentionProblem& p = c.problem;
  return p.b * p.hq * (p.sq + 1) * (p.skv + 1) * (p.d + p.dv) < 2000000;
}

const Check& CheckNamed(const std::string& name) {
  for (const Check& check : Checks()) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check " << name;
  return Checks()[0];
}

TEST(SoundKernelTest, PassesEveryCheck) {
  const std::unique_ptr<const Kernel> kernel = SoundKernel();
  const Subject subject{kernel.get(), Device::Cpu()};
  for (const Check& check : Checks()) {
    if (!AppliesTo(check, *kernel)) continue;
    int ran = 0;
    for (const Case& c : ConformanceCases()) {
      if (!IsSmall(c) || !check.applies(c)) continue;
      const absl::Status s = check.run(subject, c);
      EXPECT_TRUE(s.ok()) << check.name << " " << c.ToString() << "\n" << s.message();
      ++ran;
    }
    EXPECT_GT(ran, 10) << check.name;
  }
}

class MutationTest : public ::testing::TestWithParam<size_t> {};

TEST_P(MutationTest, IsRejected) {
  const std::vector<Mutant> mutants = Mutants();
  const Mutant& mutant = mutants[GetParam()];
  const Check& check = CheckNamed(mutant.check);
  const Subject subject{mutant.kernel.get(), Device::Cpu()};
  int ran = 0, rejected = 0;
  std::string messages;
  for (const Case& c : ConformanceCases()) {
    if (!IsSmall(c) || !check.applies(c)) continue;
    const absl::Status s = check.run(subject, c);
    ++ran;
    if (s.ok()) continue;
    ++rejected;
    messages.append(s.message().data(), s.message().size());
    if (messages.size() > 20000) break;
  }
  RecordProperty("rejected", rejected);
  EXPECT_GT(rejected, 0) << "none of " << ran << " cases shows the mistake";
  EXPECT_THAT(messages, HasSubstr(mutant.message));
  if (mutant.check == "matches_oracle" && mutant.name != "declines_after_all") {
    EXPECT_THAT(messages, HasSubstr("attnlab verify --kernel=" + mutant.name + " --problem=b="));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MutationTest, ::testing::Range<size_t>(0, Mutants().size()),
                         [](const ::testing::TestParamInfo<size_t>& info) {
                           return Mutants()[info.param].name;
                         });

}  // namespace
}  // namespace attnlab::conformance
