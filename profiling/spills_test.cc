// On a GPU: no tile of FA1 and FA2 that is for it spills registers, as its tables say.
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/bench/rotated_inputs.h"
#include "gtest/gtest.h"
#include "profiling/launch_facts.h"

namespace attnlab::profiling {
namespace {

struct Tiles {
  const char *kernel, *dtype, *config;
};

class SpillsTest : public ::testing::TestWithParam<Tiles> {};

TEST_P(SpillsTest, NothingIsSpilled) {
  const LaunchConfig config = LaunchConfig::Parse(GetParam().config).value();
  for (const int d : {32, 64, 96, 128, 192, 256}) {
    // A long query, for the large tile, and a short one.
    for (const int sq : {1024, 16}) {
      const std::string line =
          absl::StrCat("hq=2,sq=", sq, ",d=", d, ",mask=causal,dtype=", GetParam().dtype);
      SCOPED_TRACE(line);
      const absl::StatusOr<Plan> plan = MakePlan(AttentionProblem::Parse(line).value(),
                                                 Device::Cuda(0), GetParam().kernel, config);
      ASSERT_TRUE(plan.ok()) << plan.status();
      absl::StatusOr<bench::RotatedInputs> inputs = bench::RotatedInputs::Make(
          plan->problem, plan->device, /*seed=*/0, /*with_lse=*/true, /*memory_bytes=*/1);
      ASSERT_TRUE(inputs.ok()) << inputs.status();
      const absl::StatusOr<std::vector<LaunchFacts>> facts =
          FactsOf(0, [&](void* stream) { return Forward(*plan, inputs->Next(), {}, stream); });
      ASSERT_TRUE(facts.ok()) << facts.status();
      ASSERT_EQ(facts->size(), 1u);
      EXPECT_EQ(facts->front().local_bytes, 0) << facts->front().name;
    }
  }
}

constexpr Tiles kTiles[] = {
    {"fa1", "fp32", ""},         {"fa1", "fp16", ""},           {"fa1", "bf16", ""},
    {"fa2", "fp16", ""},         {"fa2", "bf16", ""},           {"fa2", "fp32", ""},
    {"fa2", "bf16", "mma=none"}, {"fa2", "fp32", "mma=tf32x3"},
};

INSTANTIATE_TEST_SUITE_P(Tables, SpillsTest, ::testing::ValuesIn(kTiles));

}  // namespace
}  // namespace attnlab::profiling
