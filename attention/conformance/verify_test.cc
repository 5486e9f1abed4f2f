#include "attention/oracle/verify.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/conformance/mutants/mutants.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/cuda/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Plan PlanFor(const Kernel& kernel, const std::string& line) {
  return *MakePlan(kernel, *AttentionProblem::Parse(line), CpuInfo());
}

std::unique_ptr<const Kernel> MutantNamed(const std::string& name) {
  for (Mutant& mutant : Mutants()) {
    if (mutant.name == name) return std::move(mutant.kernel);
  }
  ADD_FAILURE() << "no mutant " << name;
  return SoundKernel();
}

TEST(VerifyTest, PassesASoundKernelAndSaysHowCloseItIs) {
  const std::unique_ptr<const Kernel> kernel = SoundKernel();
  absl::StatusOr<oracle::VerifyResult> result =
      oracle::Verify(PlanFor(*kernel, "b=2,hq=4,hkv=2,sq=33,d=16,dtype=bf16,mask=causal"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed) << result->message;
  EXPECT_EQ(result->message, "");
  EXPECT_EQ(result->rows, 2 * 4 * 33);
  EXPECT_EQ(result->rows_checked, result->rows);
  EXPECT_GT(result->o.max_error, 0);
  EXPECT_LE(result->o.max_error, result->o.bound);
  EXPECT_LT(result->o.bound, 0.1);
  EXPECT_GT(result->lse.max_error, 0);
  EXPECT_LT(result->lse.bound, 1e-4);
}

TEST(VerifyTest, ReportsWhatIsWrongAndHowToSeeItAgain) {
  const std::unique_ptr<const Kernel> kernel = MutantNamed("lse_base_2");
  oracle::VerifyOptions options;
  options.inputs.seed = 9;
  options.inputs.layout = oracle::Layout::kOdd;
  options.inputs.values = oracle::Values::kUniform;
  absl::StatusOr<oracle::VerifyResult> result =
      oracle::Verify(PlanFor(*kernel, "hq=2,sq=20,d=8,dtype=fp32"), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed);
  EXPECT_TRUE(result->o.Passed());
  EXPECT_FALSE(result->lse.Passed());
  EXPECT_THAT(result->message,
              MatchesRegex("lse: error .* > bound .* at sequence 0, head [01], row .*\n"
                           "attnlab verify --kernel=lse_base_2 "
                           "--problem=b=1,hq=2,hkv=2,sq=20,skv=20,d=8,dtype=fp32,mask=none "
                           "--seed=9 --layout=odd --values=uniform\n"));
  options.with_lse = false;
  result = oracle::Verify(PlanFor(*kernel, "hq=2,sq=20,d=8,dtype=fp32"), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed) << result->message;
}

// Its fourth run is wrong.
class WrongOnce : public Kernel {
 public:
  WrongOnce() { traits_.name = "wrong_once"; }
  const KernelTraits& traits() const override { return traits_; }
  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(const AttentionProblem& p,
                                                          const DeviceInfo& device,
                                                          const LaunchConfig&) const override {
    absl::StatusOr<std::unique_ptr<const Prepared>> right = right_->Prepare(p, device, {});
    absl::StatusOr<std::unique_ptr<const Prepared>> wrong = wrong_->Prepare(p, device, {});
    if (!right.ok() || !wrong.ok()) return right.ok() ? wrong.status() : right.status();
    const std::shared_ptr<const Prepared> both[] = {*std::move(right), *std::move(wrong)};
    const int64_t bytes = std::max(both[0]->WorkspaceBytes(), both[1]->WorkspaceBytes());
    return PreparedAs(bytes, [right = both[0], wrong = both[1], runs = std::make_shared<int>(0)](
                                 const AttentionTensors& t, const Launch& launch) {
      return (++*runs == 4 ? wrong : right)->Run(t, launch);
    });
  }

 private:
  KernelTraits traits_;
  const std::unique_ptr<const Kernel> right_ = SoundKernel(), wrong_ = MutantNamed("no_rescale");
};

TEST(VerifyTest, RunsAsOftenAsAskedFor) {
  const WrongOnce kernel;
  oracle::VerifyOptions options;
  for (const int64_t reruns : {0, 2, 3, 9}) {
    options.reruns = reruns;
    const auto result = oracle::Verify(PlanFor(kernel, "hq=2,sq=99,d=8,dtype=fp32"), options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->passed, reruns < 3) << result->message;
    if (reruns < 3) continue;
    EXPECT_THAT(result->message, HasSubstr("a second run with different workspace contents"));
    EXPECT_THAT(result->message, HasSubstr(absl::StrCat(" --reruns=", reruns)));
  }
}

TEST(ReproduceCommandTest, HasEverythingThatIsNotTheDefault) {
  const std::unique_ptr<const Kernel> kernel = SoundKernel();
  Plan plan = PlanFor(*kernel, "hq=1,sq=2,d=3,dtype=fp32,lens=padded");
  EXPECT_EQ(oracle::ReproduceCommand(plan, {}),
            "attnlab verify --kernel=sound --problem=b=1,hq=1,hkv=1,sq=2,"
            "skv=2,d=3,dtype=fp32,mask=none,lens=padded --seed=0");
  plan.config.Set("tile_q", 16);
  oracle::VerifyOptions options;
  options.with_lse = false;
  options.inputs.q_lens = {1};
  options.inputs.kv_lens = {2};
  const std::string command = oracle::ReproduceCommand(plan, options);
  EXPECT_EQ(command.substr(command.find(" --seed=")),
            " --seed=0 --config=tile_q=16 --lse=false --q_lens=1 --kv_lens=2");
}

TEST(VerifyTest, ChecksASampleOfAProblemThatIsTooLarge) {
  const std::unique_ptr<const Kernel> sound = SoundKernel();
  const std::string line = "b=3,hq=4,hkv=2,sq=64,d=32,dtype=fp32,mask=causal,lens=padded";
  oracle::VerifyOptions options;
  options.oracle_flops = 2e5;
  absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(PlanFor(*sound, line), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed) << result->message;
  EXPECT_GT(result->rows_checked, 10);
  EXPECT_LT(result->rows_checked, result->rows / 4);
  // Here every row is wrong, so the sample is too. Rows that are not written are all found.
  const std::unique_ptr<const Kernel> wrong = MutantNamed("no_rescale");
  result = oracle::Verify(PlanFor(*wrong, line), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->passed);
  const std::unique_ptr<const Kernel> lazy = MutantNamed("drops_odd_lse");
  result = oracle::Verify(PlanFor(*lazy, line), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->message, HasSubstr("lse: 256 elements are not written"));
}

TEST(VerifyTest, AKernelsErrorIsAnError) {
  const std::unique_ptr<const Kernel> kernel = MutantNamed("declines_after_all");
  const absl::Status s = oracle::Verify(PlanFor(*kernel, "hq=1,sq=2,d=3,dtype=fp32")).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(s.message(),
            "declines_after_all: b=1,hq=1,hkv=1,sq=2,skv=2,d=3,dtype=fp32,mask=none: d: odd");
  EXPECT_EQ(oracle::Verify(Plan{}).status().message(),
            "plan: has no kernel; MakePlan() makes plans");
}

}  // namespace
}  // namespace attnlab::conformance
