#include "attention/core/statistics.h"

#include <cmath>

#include "gtest/gtest.h"

namespace attnlab {
namespace {

TEST(StatisticsTest, Quantiles) {
  EXPECT_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(Quantile({5}, 0.9), 5);
  EXPECT_EQ(Quantile({1, 2, 3}, 0), 1);
  EXPECT_EQ(Quantile({1, 2, 3}, 1), 3);
  EXPECT_DOUBLE_EQ(Quantile({0, 10}, 0.1), 1);
  EXPECT_TRUE(std::isnan(Quantile({}, 0.5)));
}

}  // namespace
}  // namespace attnlab
