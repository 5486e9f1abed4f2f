// Which kernel MakePlan() takes on Hopper if the caller names none.
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/core/kernel.h"
#include "attention/core/problem.h"
#include "attention/cuda/machine.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

constexpr const char* kHeadDims[] = {"d=64", "d=96", "d=128", "d=192", "d=256",      "d=192,dv=128",
                                     "d=8",  "d=72", "d=100", "d=160", "d=64,dv=200"};

constexpr const char* kFeatures[] = {
    "sq=1000",
    "sq=1000,mask=causal",
    "sq=1000,mask=window:256:0",
    "sq=1000,skv=131072",
    "sq=100,skv=200000,mask=window:1000:1000",
    "sq=4096,skv=100,mask=causal",
    "sq=300,hkv=2",
    "sq=300,hkv=1,mask=causal",
    "sq=1000,lens=packed",
    "sq=1000,lens=packed,mask=causal",
    "sq=1000,lens=padded,hkv=2",
    "sq=1000,lens=padded,mask=window:64:64",
    "sq=1000,softcap=30",
    "sq=1000,softcap=30,mask=causal",
    "sq=1000,scale=2",
};

constexpr const char* kShortQueries[] = {
    "sq=1,skv=4096",
    "sq=1,skv=131072,lens=padded",
    "sq=1,skv=4096,page=16",
    "sq=7,skv=4096,mask=causal",
    "sq=4,skv=4096,hkv=1,mask=causal,lens=packed,page=64",
    "sq=2,skv=4096,mask=window:1000:0,softcap=30",
    "sq=64,skv=4096,mask=causal",  // 12 x 4 tiles, for 132 multiprocessors
    "sq=0,skv=10",
    "sq=10,skv=0",
};

absl::StatusOr<Plan> PlanOf(const std::string& line) {
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
  if (!problem.ok()) return problem.status();
  return MakePlan(*problem, Device::Cuda(0));
}

TEST(DefaultKernelTest, HopperHasItsOwnFor16BitOfEveryFeatureAndHeadDim) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  if (gpu->compute_capability != 90) GTEST_SKIP() << "not a Hopper GPU";
  for (const char* dtype : {"fp16", "bf16"}) {
    for (const char* dims : kHeadDims) {
      for (const char* feature : kFeatures) {
        const std::string line = absl::StrCat("b=3,hq=4,", feature, ",", dims, ",dtype=", dtype);
        SCOPED_TRACE(line);
        const absl::StatusOr<Plan> plan = PlanOf(line);
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_EQ(plan->kernel->traits().name, "warp_specialized");
        // For strides that TMA cannot express.
        ASSERT_NE(plan->otherwise, nullptr);
        EXPECT_EQ(plan->otherwise->kernel->traits().name, "fa2");
      }
    }
  }
}

TEST(DefaultKernelTest, HopperHasItsOwnForPagesOfItsSwizzle) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  if (gpu->compute_capability != 90) GTEST_SKIP() << "not a Hopper GPU";
  for (const char* dims : kHeadDims) {
    for (const int page : {4, 8, 16, 64, 128, 256}) {
      const std::string line =
          absl::StrCat("b=3,hq=4,sq=1000,mask=causal,", dims, ",dtype=bf16,page=", page);
      SCOPED_TRACE(line);
      const absl::StatusOr<Plan> plan = PlanOf(line);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->kernel->traits().name, page < 8 ? "split_k" : "warp_specialized");
      if (page < 8) continue;
      ASSERT_NE(plan->otherwise, nullptr);
      EXPECT_EQ(plan->otherwise->kernel->traits().name, "split_k");
    }
  }
}

TEST(DefaultKernelTest, SplitKHasShortQueries) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  for (const char* dtype : {"fp16", "bf16", "bf16,kvdtype=fp8_e4m3"}) {
    for (const char* dims : kHeadDims) {
      for (const char* feature : kShortQueries) {
        const std::string line = absl::StrCat("b=3,hq=4,", feature, ",", dims, ",dtype=", dtype);
        const absl::StatusOr<Plan> plan = PlanOf(line);
        ASSERT_TRUE(plan.ok()) << line << ": " << plan.status();
        EXPECT_EQ(plan->kernel->traits().name, "split_k") << line;
        EXPECT_EQ(plan->otherwise, nullptr) << line;
      }
    }
  }
}

TEST(DefaultKernelTest, Fa2HasTheRest) {
  for (const char* dims : kHeadDims) {
    const std::string line = absl::StrCat("b=3,hq=4,sq=1000,dtype=fp32,", dims);
    const absl::StatusOr<Plan> plan = PlanOf(line);
    ASSERT_TRUE(plan.ok()) << line << ": " << plan.status();
    EXPECT_EQ(plan->kernel->traits().name, "fa2") << line;
    EXPECT_EQ(plan->otherwise, nullptr) << line;
  }
}

}  // namespace
}  // namespace attnlab
