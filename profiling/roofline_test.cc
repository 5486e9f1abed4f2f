#include "profiling/roofline.h"

#include "gtest/gtest.h"

namespace attnlab::profiling {
namespace {

// A card of 100 FLOP/s and 10 B/s: its ridge is at 10 FLOP a byte.
RooflinePoint Point(double flops, double bytes, double seconds) {
  return {flops, bytes, seconds, 100, 10};
}

TEST(RooflineTest, BelowTheRidgeMemoryIsTheLimit) {
  const RooflinePoint point = Point(50, 10, 2);
  EXPECT_DOUBLE_EQ(point.Intensity(), 5);
  EXPECT_DOUBLE_EQ(point.Attainable(), 50);
  EXPECT_DOUBLE_EQ(point.Fraction(), 0.5);
}

TEST(RooflineTest, AboveItArithmeticIs) {
  const RooflinePoint point = Point(1000, 10, 20);
  EXPECT_DOUBLE_EQ(point.Attainable(), 100);
  EXPECT_DOUBLE_EQ(point.Fraction(), 0.5);
}

TEST(RooflineTest, AtTheRidgeBothAre) {
  const RooflinePoint point = Point(100, 10, 1);
  EXPECT_DOUBLE_EQ(point.Attainable(), 100);
  EXPECT_DOUBLE_EQ(point.Fraction(), 1);
}

}  // namespace
}  // namespace attnlab::profiling
