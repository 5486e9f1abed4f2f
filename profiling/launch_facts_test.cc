#include "profiling/launch_facts.h"

#include "gtest/gtest.h"

namespace attnlab::profiling {
namespace {

TEST(LaunchFactsTest, OccupancyIsOfWholeWarps) {
  EXPECT_EQ(OccupancyOf(8, 256, 2048), 1);
  EXPECT_EQ(OccupancyOf(1, 384, 2048), 0.1875);
  EXPECT_EQ(OccupancyOf(1, 1, 2048), 32. / 2048);
  EXPECT_EQ(OccupancyOf(2, 33, 1024), 128. / 1024);
  EXPECT_EQ(OccupancyOf(0, 1024, 1024), 0);  // does not fit
}

}  // namespace
}  // namespace attnlab::profiling
