#include "attention/oracle/tolerance.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

using oracle::Result;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ToleranceTest : public ::testing::Test {
 protected:
  ToleranceTest() {
    exact_.dv = 2;
    exact_.o = {1, 2, 3, 4};
    exact_.lse = {3, -1};
    exact_.spread = {0.5, 0.25};
    exact_.score = {1, 2};
    plain_ = values_ = exact_;
  }

  oracle::Errors Run(DType dtype = DType::kFloat32) const {
    return oracle::Compare(dtype, dtype, rows_, exact_, plain_, values_);
  }

  const std::vector<oracle::Row> rows_ = {{0, 0, 0}, {2, 1, 7}};
  Result exact_, plain_, values_;
};

TEST_F(ToleranceTest, TheBoundIsTwiceTheStraightforwardErrorAndAFloor) {
  const double e32 = std::ldexp(1.0, -23), e16 = std::ldexp(1.0, -10);
  values_.o[0] = 1.5;  // row 0: its largest |O| is 2, its LSE 3
  values_.lse[0] = 3.5;
  EXPECT_DOUBLE_EQ(Run().lse.bound, 8 * e32 * 4);
  EXPECT_NEAR(Run().o.bound, (e32 / 2 + 8 * e32 * 4) * 2, 1e-12);
  EXPECT_NEAR(Run(DType::kFloat16).o.bound, (e16 / 2 + 8 * e32 * 4) * 2, 1e-7);
  plain_.o[2] = 3.4;     // row 1: an error of 0.4 where O is up to 4
  plain_.lse[1] = -1.5;  // 0.5 where the unit is 3
  EXPECT_NEAR(Run().o.bound, 2 * 0.1 * 2 + (e32 / 2 + 8 * e32 * 4) * 2, 1e-12);
  EXPECT_NEAR(Run().lse.bound, 2 * 0.5 / 3 * 4 + 8 * e32 * 4, 1e-12);
}

TEST_F(ToleranceTest, Tf32FactorsMayErrByTheirTenBits) {
  const double e32 = std::ldexp(1.0, -23), tf32 = std::ldexp(1.0, -10);
  values_.o[0] = 1.5;
  values_.lse[0] = 3.5;
  const oracle::Errors errors = oracle::Compare(DType::kFloat32, DType::kFloat32, rows_, exact_,
                                                plain_, values_, oracle::Factors::kTf32);
  EXPECT_DOUBLE_EQ(errors.lse.bound, tf32 * 4);
  EXPECT_NEAR(errors.o.bound, (e32 / 2 + tf32 * 4) * 2, 1e-12);
}

TEST_F(ToleranceTest, LargeScoresMayErrMoreHoweverSmallSoftcapMakesLse) {
  const double e32 = std::ldexp(1.0, -23);
  exact_.score[1] = 99;
  values_.lse[1] = 0;
  values_.o[3] = 5;
  EXPECT_DOUBLE_EQ(Run().lse.bound, 8 * e32 * 100);
  EXPECT_NEAR(Run().o.bound, (e32 / 2 + 8 * e32 * 100) * 4, 1e-12);
}

TEST_F(ToleranceTest, ARowWithHugeScoresOrInfinityExcusesNoOther) {
  exact_.score[0] = 1e30;
  exact_.o[0] = plain_.o[0] = values_.o[0] = kInfinity;
  EXPECT_TRUE(Run().o.Passed());
  values_.o[1] = 3;  // in the row of the infinity, whose scores are so large that anything passes
  values_.o[3] = 4.01;
  values_.lse[1] = -0.9;
  EXPECT_FALSE(Run().o.Passed());
  EXPECT_FALSE(Run().lse.Passed());
  exact_.score[0] = 1;
  values_.o[3] = 4;
  EXPECT_FALSE(Run().o.Passed());  // fails for the element in the row of the infinity
}

TEST_F(ToleranceTest, SmallRowsMustBeMorePrecise) {
  exact_.o = {1, 2, 0.01, 0.02};
  exact_.spread = {0.5, 0.01};
  plain_ = values_ = exact_;
  plain_.o[0] = 1.1;  // 0.05 units
  values_.o[0] = 1.19;
  EXPECT_TRUE(Run().o.Passed());
  values_.o[0] = 1;
  values_.o[2] = 0.0119;
  EXPECT_TRUE(Run().o.Passed());
  values_.o[2] = 0.03;  // far below the bound of row 0, but too much here
  EXPECT_FALSE(Run().o.Passed());
  EXPECT_EQ(Run().o.row, rows_[1]);
}

TEST_F(ToleranceTest, SaysWhereTheErrorIs) {
  EXPECT_TRUE(Run().o.Passed());
  EXPECT_EQ(Run().o.max_error, 0);
  values_.o = {1, 2.125, 3, 4.5};
  values_.lse = {3, -1};
  const oracle::Errors errors = Run();
  EXPECT_FALSE(errors.o.Passed());
  EXPECT_TRUE(errors.lse.Passed());
  EXPECT_EQ(errors.o.ToString(),
            "error 0.5 > bound 1.17e-05 at sequence 2, head 1, row 7, dim 1: 4.5 where the oracle "
            "has 4");
}

TEST_F(ToleranceTest, NanNeverPassesUnlessTheOracleHasIt) {
  values_.o[2] = kNan;
  EXPECT_EQ(Run().o.max_error, kInfinity);
  EXPECT_FALSE(Run().o.Passed());
  // A straightforward implementation that also has NaN there does not excuse it.
  plain_.o[2] = kNan;
  EXPECT_FALSE(Run().o.Passed());
  exact_.o[2] = kNan;
  EXPECT_TRUE(Run().o.Passed());
  values_.o[2] = 3;
  EXPECT_FALSE(Run().o.Passed());
}

TEST_F(ToleranceTest, InfinitiesMustBeTheSame) {
  exact_.lse[0] = plain_.lse[0] = -kInfinity;
  values_.lse[0] = -kInfinity;
  EXPECT_TRUE(Run().lse.Passed());
  EXPECT_GT(Run().lse.bound, 0);
  EXPECT_TRUE(std::isfinite(Run().lse.bound));
  for (double wrong : {kInfinity, -1e30, 0.0, kNan}) {
    values_.lse[0] = wrong;
    EXPECT_FALSE(Run().lse.Passed()) << wrong;
  }
}

TEST_F(ToleranceTest, InfinityPassesWhereTheOracleRoundsToIt) {
  values_.o[0] = kInfinity;
  exact_.o[0] = 65519;  // rounds down to the largest half, 65504
  EXPECT_FALSE(Run(DType::kFloat16).o.Passed());
  exact_.o[0] = 65521;
  EXPECT_TRUE(Run(DType::kFloat16).o.Passed());
  EXPECT_FALSE(Run(DType::kBFloat16).o.Passed());
}

TEST_F(ToleranceTest, WithoutLseOnlyOIsCompared) {
  values_.lse.clear();
  EXPECT_TRUE(Run().lse.Passed());
  EXPECT_EQ(Run().lse.bound, 0);
}

TEST_F(ToleranceTest, NoRowsPass) {
  const oracle::Errors errors =
      oracle::Compare(DType::kBFloat16, DType::kBFloat16, {}, Result(), Result(), Result());
  EXPECT_TRUE(errors.o.Passed());
  EXPECT_TRUE(errors.lse.Passed());
}

}  // namespace
}  // namespace attnlab::conformance
