// The CPU kernel on them.
#include "attention/testing/special_values.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/machine.h"
#include "attention/problem.h"
#include "attention/testing/layout.h"
#include "gtest/gtest.h"

namespace attnlab::testing {
namespace {

Plan PlanOf(const std::string& line) {
  const absl::StatusOr<Plan> plan = MakePlan(*AttentionProblem::Parse(line), Device::Cpu(), "cpu");
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(Plan());
}

TEST(SpecialValuesTest, OfVReachTheRowsThatSeeThem) {
  for (const char* mask : {"none", "causal", "window:20:3"}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      const Plan plan = PlanOf(
          absl::StrCat("b=2,hq=4,hkv=2,sq=200,skv=150,d=64,dv=72,dtype=", dtype, ",mask=", mask));
      EXPECT_EQ(SpecialValuesOfV(plan, Layout::kBshd), absl::OkStatus());
    }
  }
  EXPECT_EQ(SpecialValuesOfV(PlanOf("hq=2,sq=12,skv=12,d=16,dv=13,mask=window:2:1"), Layout::kOdd),
            absl::OkStatus());
}

TEST(SpecialValuesTest, OfKLeaveRowsWithoutASoftmax) {
  for (const char* mask : {"none", "causal", "window:20:3", "causal,softcap=20"}) {
    for (const int64_t keys : {75, 150}) {
      const Plan plan =
          PlanOf(absl::StrCat("b=2,hq=4,hkv=2,sq=200,skv=150,d=64,dv=72,mask=", mask));
      EXPECT_EQ(SpecialValuesOfK(plan, Layout::kBshd, keys), absl::OkStatus());
    }
  }
  EXPECT_EQ(SpecialValuesOfK(PlanOf("hq=1,sq=1,skv=1,d=8"), Layout::kOdd, 1), absl::OkStatus());
}

TEST(SpecialValuesTest, NothingToSee) {
  // The last query sees the last key alone, where V is finite.
  EXPECT_TRUE(absl::IsInvalidArgument(
      SpecialValuesOfV(PlanOf("hq=1,sq=1,skv=12,d=16,dv=16,mask=window:0:0"), Layout::kBshd)));
}

}  // namespace
}  // namespace attnlab::testing
