// On a GPU: infinity and NaN in V, and scores of minus infinity, in every tile. That other results
// are right is for the conformance test.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/device/cuda_core_table.h"
#include "attention/launch_config.h"
#include "attention/machine.h"
#include "attention/problem.h"
#include "attention/testing/layout.h"
#include "attention/testing/special_values.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

// For each tile that fits the GPU, and each dtype.
std::vector<Plan> PlansOf(const std::string& line) {
  const absl::StatusOr<DeviceInfo> gpu = InfoOf(Device::Cuda(0));
  EXPECT_TRUE(gpu.ok()) << gpu.status();
  std::vector<Plan> plans;
  for (const device::CudaCoreTile& tile : device::kCudaCoreTiles) {
    if (!gpu.ok() || tile.shared_bytes > gpu->shared_memory_per_block) continue;
    if (tile.blocks > 1) continue;  // not one of FA1's
    for (const char* dtype : {"fp32", "fp16", "bf16"}) {
      const absl::StatusOr<Plan> plan = MakePlan(
          *AttentionProblem::Parse(absl::StrCat(line, ",d=", tile.dim, ",dtype=", dtype)),
          Device::Cuda(0), "fa1",
          *LaunchConfig::Parse(absl::StrCat("tile_q=", tile.rows, ",tile_kv=", tile.keys)));
      EXPECT_TRUE(plan.ok()) << plan.status();
      if (plan.ok()) plans.push_back(*plan);
    }
  }
  EXPECT_FALSE(plans.empty());
  return plans;
}

TEST(Fa1Test, SpecialValuesOfVReachTheRowsThatSeeThem) {
  for (const char* mask : {"none", "causal", "window:40:9"}) {
    for (const Plan& plan : PlansOf(absl::StrCat("hq=2,hkv=1,sq=200,skv=150,mask=", mask))) {
      EXPECT_EQ(testing::SpecialValuesOfV(plan, testing::Layout::kBshd), absl::OkStatus());
    }
  }
}

// A row whose scores are all minus infinity is NaN, and a key of such a score has a weight of 0,
// not none.
TEST(Fa1Test, ScoresOfMinusInfinity) {
  for (const char* rest : {"none", "causal", "window:40:9", "causal,softcap=20"}) {
    for (const Plan& plan : PlansOf(absl::StrCat("hq=2,hkv=1,sq=200,skv=150,mask=", rest))) {
      EXPECT_EQ(testing::SpecialValuesOfK(plan, testing::Layout::kBshd, 75), absl::OkStatus());
    }
  }
  for (const Plan& plan : PlansOf("hq=1,sq=1,skv=1")) {
    EXPECT_EQ(testing::SpecialValuesOfK(plan, testing::Layout::kBshd, 1), absl::OkStatus());
  }
}

// For tools that make it slow: warps whose rows see nothing of a tile, and some of the next.
TEST(Fa1Test, EachTileOnce) {
  for (const Plan& plan : PlansOf("hq=1,sq=200,skv=333,mask=window:100:7")) {
    EXPECT_EQ(testing::SpecialValuesOfV(plan, testing::Layout::kBshd), absl::OkStatus());
  }
}

}  // namespace
}  // namespace attnlab
