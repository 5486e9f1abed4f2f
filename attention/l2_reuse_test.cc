#include "attention/l2_reuse.h"

#include <cstdint>

#include "attention/problem.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

DeviceInfo Gpu(int compute_capability) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = compute_capability;
  gpu.last_level_cache_bytes = 60;
  return gpu;
}

TEST(L2BytesForTest, OfTwoPartsBothHoldWhatManyRead) {
  EXPECT_DOUBLE_EQ(L2BytesFor(Gpu(90), 1), 40);
  EXPECT_DOUBLE_EQ(L2BytesFor(Gpu(90), 132), 30);
  EXPECT_DOUBLE_EQ(L2BytesFor(Gpu(80), 0), 40);
  EXPECT_DOUBLE_EQ(L2BytesFor(Gpu(75), 132), 60);
  EXPECT_DOUBLE_EQ(L2BytesFor(Gpu(89), 132), 60);
  EXPECT_DOUBLE_EQ(L2BytesSurelyFor(Gpu(90), 132), 20);
}

Traffic ReadsOf(int64_t bytes) {
  Traffic traffic;
  traffic.bytes_read = bytes;
  return traffic;
}

// Of a model that reads 100 bytes, which take 60 of L2 to be found again.
Traffic TwiceBelow(int64_t l2) {
  DeviceInfo gpu = Gpu(90);
  gpu.last_level_cache_bytes = l2;
  return WithL2InDoubt(gpu, [](const DeviceInfo& device) {
    return ReadsOf(device.last_level_cache_bytes < 60 ? 200 : 100);
  });
}

TEST(WithL2InDoubtTest, AwayFromTheCapacityThereIsAValue) {
  EXPECT_EQ(TwiceBelow(90).bytes_read, 100);
  EXPECT_FALSE(TwiceBelow(90).reads_between.has_value());
  EXPECT_EQ(TwiceBelow(39).bytes_read, 200);
  EXPECT_FALSE(TwiceBelow(39).reads_between.has_value());
  EXPECT_EQ(TwiceBelow(0).bytes_read, 200);
}

TEST(WithL2InDoubtTest, NearItThereIsAnInterval) {
  for (const int64_t l2 : {40, 59, 60, 89}) {
    const Traffic traffic = TwiceBelow(l2);
    EXPECT_EQ(traffic.bytes_read, l2 < 60 ? 200 : 100);
    ASSERT_TRUE(traffic.reads_between.has_value()) << l2;
    EXPECT_EQ(traffic.reads_between->least, 100);
    EXPECT_EQ(traffic.reads_between->most, 200);
  }
}

TEST(WithL2InDoubtTest, ATenthIsAValueThatIsNearBoth) {
  const auto of = [](int64_t beyond) {
    return WithL2InDoubt(Gpu(90), [beyond](const DeviceInfo& device) {
      return ReadsOf(device.last_level_cache_bytes < 60 ? 1000 + beyond : 1000);
    });
  };
  EXPECT_FALSE(of(100).reads_between.has_value());
  EXPECT_EQ(of(40).bytes_read, 1000);
  EXPECT_EQ(of(100).bytes_read, 1047);
  EXPECT_TRUE(of(101).reads_between.has_value());
  EXPECT_EQ(of(101).bytes_read, 1000);
}

TEST(WithL2InDoubtTest, IntervalsOfTheModelCount) {
  const Traffic traffic = WithL2InDoubt(Gpu(90), [](const DeviceInfo& device) {
    Traffic of = ReadsOf(1000);
    if (device.last_level_cache_bytes < 60) of.reads_between = {900, 3000};
    return of;
  });
  ASSERT_TRUE(traffic.reads_between.has_value());
  EXPECT_EQ(traffic.reads_between->least, 900);
  EXPECT_EQ(traffic.reads_between->most, 3000);
}

enum Tensors { kA, kB, kC };

TEST(L2StepsTest, TheFirstReadComesFromMemory) {
  L2Steps steps(1000);
  steps.Add({{kA, 10}}, {{kB, 20}});
  EXPECT_DOUBLE_EQ(steps.BytesRead(), 10);
  EXPECT_DOUBLE_EQ(steps.BytesWritten(), 20);
}

TEST(L2StepsTest, WhatFitsIsFound) {
  L2Steps steps(30);
  steps.Add({{kA, 10}}, {{kB, 20}});
  steps.Add({{kB, 20}}, {});
  steps.Add({{kA, 10}}, {});  // 20 + 10 were used since the beginning of A
  EXPECT_DOUBLE_EQ(steps.BytesRead(), 10);
}

TEST(L2StepsTest, WhatDoesNotFitIsNot) {
  L2Steps steps(19);
  steps.Add({{kA, 10}}, {{kB, 20}});
  steps.Add({{kB, 20}}, {});
  EXPECT_DOUBLE_EQ(steps.BytesRead(), 30);
}

TEST(L2StepsTest, OfATensorThatIsReadFromItsBeginningTheEndMayBeFound) {
  // Since B was written: 30 of its first byte, 20 of its last, 25 of that in the middle.
  L2Steps steps(25);
  steps.Add({{kA, 10}}, {{kB, 20}});
  steps.Add({{kB, 20}}, {});
  EXPECT_DOUBLE_EQ(steps.BytesRead(), 10 + 10);
}

TEST(L2StepsTest, TheBeginningMayBeFoundWhereMoreIsUsedNow) {
  // 20 of its first byte, 40 of its last.
  L2Steps steps(25);
  steps.Add({}, {{kB, 20}});
  steps.Add({{kB, 20}}, {{kC, 20}});
  EXPECT_DOUBLE_EQ(steps.BytesRead(), 15);
}

TEST(L2StepsTest, WhatIsReadAndWrittenTakesItsPlaceOnce) {
  L2Steps steps(20);
  steps.Add({}, {{kA, 20}});
  steps.Add({{kA, 20}}, {{kA, 20}});
  steps.Add({{kA, 20}}, {});
  EXPECT_DOUBLE_EQ(steps.BytesRead(), 0);
  EXPECT_DOUBLE_EQ(steps.BytesWritten(), 40);
}

TEST(L2StepsTest, WithoutACacheAllIsRead) {
  L2Steps steps(0);
  steps.Add({}, {{kA, 20}});
  steps.Add({{kA, 20}}, {});
  EXPECT_DOUBLE_EQ(steps.BytesRead(), 20);
}

}  // namespace
}  // namespace attnlab
