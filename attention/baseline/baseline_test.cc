// On a GPU: which steps a call takes, and what TF32 costs. The conformance test checks results.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/machine.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/tolerance.h"
#include "attention/oracle/trial.h"
#include "attention/oracle/verify.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

// Counts launches.
class Counter : public device::LaunchObserver {
 public:
  Counter() : before_(device::SetLaunchObserver(this)) {}
  ~Counter() override { device::SetLaunchObserver(before_); }
  void OnLaunch(const device::LaunchRecord& record) override {
    ++count;
    blocks.push_back(record.block.x);
    if (before_ != nullptr) before_->OnLaunch(record);
  }
  int count = 0;
  std::vector<unsigned> blocks;

 private:
  device::LaunchObserver* const before_;
};

// The number of our kernels that one call launches. cuBLAS's matrix products do not count.
std::vector<unsigned> BlocksOf(const std::string& line, oracle::Layout layout,
                               const std::string& config = "") {
  const AttentionProblem problem = *AttentionProblem::Parse(line);
  const absl::StatusOr<Plan> plan =
      MakePlan(problem, Device::Cuda(0), "baseline", *LaunchConfig::Parse(config));
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status();
    return {};
  }
  oracle::InputOptions inputs;
  inputs.layout = layout;
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(*plan, inputs, /*with_lse=*/true);
  if (!trial.ok()) {
    ADD_FAILURE() << trial.status();
    return {};
  }
  const Counter counter;
  const auto run = trial->RunOnce();
  EXPECT_TRUE(run.ok()) << run.status();
  return counter.blocks;
}

int LaunchesOf(const std::string& line, oracle::Layout layout, const std::string& config = "") {
  return static_cast<int>(BlocksOf(line, layout, config).size());
}

constexpr oracle::Layout kBhsd = oracle::Layout::kBhsd, kBshd = oracle::Layout::kBshd,
                         kQkv = oracle::Layout::kQkv;

TEST(BaselineTest, PermutesOnlyWhatNeedsIt) {
  const std::string p = "b=2,hq=4,sq=64,d=64,dtype=fp32";
  EXPECT_EQ(LaunchesOf(p, kBhsd), 2);                   // scale and mask, softmax
  EXPECT_EQ(LaunchesOf(p, kBhsd, "softmax=fused"), 1);  // softmax
  EXPECT_EQ(LaunchesOf(p, kBshd), 6);                   // and Q, K, V, O
  EXPECT_EQ(LaunchesOf(p, kQkv), 6);
  EXPECT_EQ(LaunchesOf(p, kBhsd, "permute=always"), 6);
  EXPECT_EQ(LaunchesOf(p + ",mask=causal", kBhsd), 2);
  EXPECT_EQ(LaunchesOf("b=1,hq=4,sq=64,d=64,dtype=fp32", kQkv), 2);
  EXPECT_EQ(LaunchesOf(p + ",lens=padded", kBhsd), 6);
  EXPECT_EQ(LaunchesOf(p, kBhsd, "heads=3"), 2 * 3);  // eight heads, three at a time
}

TEST(BaselineTest, BlocksAreAsConfigured) {
  for (const unsigned block : {32u, 64u, 128u, 256u, 512u}) {
    for (const unsigned b : BlocksOf("b=2,hq=4,sq=100,d=64,dtype=fp32,mask=causal", kBshd,
                                     "block=" + std::to_string(block))) {
      EXPECT_EQ(b, block);
    }
  }
}

// More (sequence, head) pairs than two of the three axes of a grid have room for, and than cuBLAS
// is given at a time.
TEST(BaselineTest, ManyHeads) {
  for (const char* mask : {"none", "causal"}) {
    const absl::StatusOr<Plan> plan = MakePlan(
        *AttentionProblem::Parse(absl::StrCat("b=65539,hq=2,hkv=1,sq=1,skv=3,d=8,mask=", mask)),
        Device::Cuda(0), "baseline");
    ASSERT_TRUE(plan.ok()) << plan.status();
    const absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(*plan);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->passed) << result->message;
  }
}

// The largest error of O in units of its row (tolerance.h).
double ErrorOf(const std::string& line, const std::string& config) {
  const AttentionProblem problem = *AttentionProblem::Parse(line);
  const absl::StatusOr<Plan> plan =
      MakePlan(problem, Device::Cuda(0), "baseline", *LaunchConfig::Parse(config));
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status();
    return 0;
  }
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(*plan, {}, /*with_lse=*/false);
  if (!trial.ok()) {
    ADD_FAILURE() << trial.status();
    return 0;
  }
  const auto run = trial->RunOnce();
  EXPECT_TRUE(run.ok()) << run.status();
  if (!run.ok()) return 0;
  const AttentionTensors& t = trial->inputs().host_tensors();
  const std::vector<oracle::Row> rows = oracle::AllRows(problem, t);
  const auto exact = oracle::Exact(problem, t, rows);
  EXPECT_TRUE(exact.ok());
  const oracle::Result values = oracle::ValuesOf(problem, t, run->outputs, rows);
  double worst = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t j = 0; j < problem.dv; ++j) {
      worst = std::max(worst, std::abs(values.O(i, j) - exact->O(i, j)) / exact->spread[i]);
    }
  }
  return worst;
}

// TF32 keeps 10 bits of the mantissa, so each factor is off by up to 2^-11. The scores, and the
// products of P and V, have errors of that size, which add up over a row to at most a few times it.
// Without TF32 they would be thousands of times smaller.
TEST(BaselineTest, Tf32IsAsPreciseAsItsTenBits) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  ASSERT_TRUE(gpu.ok());
  if (gpu->compute_capability < 80) GTEST_SKIP() << "no TF32 before 8.0";
  const std::string p = "b=2,hq=4,sq=512,d=64,dtype=fp32,mask=causal";
  const double fp32 = ErrorOf(p, ""), tf32 = ErrorOf(p, "math=tf32");
  EXPECT_LT(fp32, 1e-5);
  EXPECT_GT(tf32, 1e-4);
  EXPECT_LT(tf32, 1e-2);

  // It is also as precise as a straightforward implementation with TF32 factors.
  const absl::StatusOr<Plan> plan = MakePlan(*AttentionProblem::Parse(p), Device::Cuda(0),
                                             "baseline", *LaunchConfig::Parse("math=tf32"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(*plan);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->passed) << result->message;
}

}  // namespace
}  // namespace attnlab
