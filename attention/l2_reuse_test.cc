#include "attention/l2_reuse.h"

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
