#include "tools/command/support.h"

#include "attention/core/registry.h"
#include "attention/cuda/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::command {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

TEST(SupportTest, AsksTheKernel) {
  const Support all = Probe(**Registry::Global().Find("reference"), CpuInfo());
  EXPECT_THAT(all.dtypes, ElementsAre("fp32", "fp16", "bf16", "fp8_e4m3"));
  EXPECT_THAT(all.masks, ElementsAre("none", "causal", "window"));
  EXPECT_THAT(all.lengths, ElementsAre("fixed", "packed", "padded"));
  EXPECT_EQ(Ranges(all.head_dims), "1-512");
  for (const char* feature : {"prefill", "decode", "gqa", "scale", "softcap", "dv!=d", "paged"}) {
    EXPECT_THAT(all.features, Contains(feature));
  }

  const Support picky = Probe(**Registry::Global().Find("picky"), CpuInfo());
  EXPECT_THAT(picky.dtypes, ElementsAre("fp16"));
  EXPECT_THAT(picky.head_dims, ElementsAre(64, 128));
  EXPECT_THAT(picky.lengths, ElementsAre("fixed"));
  EXPECT_THAT(picky.features, Not(Contains("paged")));
}

TEST(SupportTest, Ranges) {
  EXPECT_EQ(Ranges({}), "");
  EXPECT_EQ(Ranges({64}), "64");
  EXPECT_EQ(Ranges({64, 128}), "64, 128");
  EXPECT_EQ(Ranges({1, 2, 3, 4}), "1-4");
  EXPECT_EQ(Ranges({8, 16, 24, 32}), "8-32 step 8");
  EXPECT_EQ(Ranges({32, 64, 128, 256}), "32, 64, 128, 256");
  EXPECT_EQ(Ranges({1, 2, 3, 64, 128, 192, 512}), "1-3, 64-192 step 64, 512");
}

TEST(SupportTest, TypicalGpus) {
  EXPECT_EQ(TypicalGpu(75).shared_memory_per_block, 64 * 1024);
  EXPECT_EQ(TypicalGpu(80).shared_memory_per_block, 163 * 1024);
  EXPECT_EQ(TypicalGpu(86).shared_memory_per_block, 99 * 1024);
  EXPECT_EQ(TypicalGpu(90).shared_memory_per_block, 227 * 1024);
  EXPECT_EQ(TypicalGpu(90).compute_capability, 90);
  EXPECT_EQ(TypicalGpu(90).device.kind, DeviceKind::kCuda);
}

}  // namespace
}  // namespace attnlab::command
