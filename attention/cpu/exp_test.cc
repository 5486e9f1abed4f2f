// exp2 and tanh against double precision, on every instruction set of this machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attention/core/dtype.h"
#include "attention/cpu/targets.h"
#include "gtest/gtest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/exp_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/exp-inl.h"
#include "hwy/tests/hwy_gtest.h"

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {
namespace {

float OneExp2(float x) { return hn::GetLane(Exp2(hn::Set(F(), x))); }
float OneTanh(float x) { return hn::GetLane(Tanh(hn::Set(F(), x))); }

// The distance of `value` from `exact` in units of the last place of a float near `exact`.
double Ulps(float value, double exact) {
  const float nearest = static_cast<float>(exact);
  const double ulp = std::nextafter(std::abs(nearest), std::numeric_limits<float>::infinity()) -
                     double{std::abs(nearest)};
  return std::abs(double{value} - exact) / ulp;
}

void Exp2IsAccurate() {
  double worst = 0;
  for (int64_t i = -126 * 4096; i < 127 * 4096; ++i) {
    // An odd step, so that fractions of all lengths occur.
    const float x = static_cast<float>(i) / 4096 + 1e-5f * static_cast<float>(i % 7);
    worst = std::max(worst, Ulps(OneExp2(x), std::exp2(double{x})));
  }
  EXPECT_LE(worst, 2.0);
  // Scores close to the maximum lie near zero.
  worst = 0;
  for (int i = 1; i < 100000; ++i) {
    const float x = static_cast<float>(-i) * 1e-5f;
    worst = std::max(worst, Ulps(OneExp2(x), std::exp2(double{x})));
  }
  EXPECT_LE(worst, 2.0);
}

void Exp2OfSpecialValues() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(OneExp2(0), 1.0f);
  EXPECT_EQ(OneExp2(-0.0f), 1.0f);
  EXPECT_EQ(OneExp2(-126), std::ldexp(1.0f, -126));
  EXPECT_EQ(OneExp2(-127), 0.0f);
  EXPECT_EQ(OneExp2(-1e4f), 0.0f);
  EXPECT_EQ(OneExp2(-3e38f), 0.0f);
  EXPECT_EQ(OneExp2(-kInfinity), 0.0f);
  for (int n = -126; n <= 127; ++n) {
    EXPECT_EQ(OneExp2(static_cast<float>(n)), std::ldexp(1.0f, n)) << n;
  }
}

void NanStaysNan() {
  // NaN with payloads too: their low bits must not turn into an exponent.
  for (uint32_t payload : {0u, 1u, 3u, 0x1FFu, 0x3FFFFFu}) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      const float nan = attnlab::internal::FloatFromBits(0x7FC00000u | payload | sign);
      EXPECT_TRUE(std::isnan(OneExp2(nan))) << payload;
      EXPECT_TRUE(std::isnan(OneTanh(nan))) << payload;
    }
  }
}

void TanhIsAccurate() {
  double worst = 0;
  for (int i = -120000; i <= 120000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    worst = std::max(worst, Ulps(OneTanh(x), std::tanh(double{x})));
  }
  // Scores far below the cap: the error must be relative to them.
  for (float x = 1e-30f; x < 1; x *= 1.7f) {
    worst = std::max(worst, Ulps(OneTanh(x), std::tanh(double{x})));
    worst = std::max(worst, Ulps(OneTanh(-x), std::tanh(double{-x})));
  }
  EXPECT_LE(worst, 3.0);
  EXPECT_EQ(OneTanh(0), 0.0f);
  EXPECT_EQ(OneTanh(1e4f), 1.0f);
  EXPECT_EQ(OneTanh(-3e38f), -1.0f);
  EXPECT_EQ(OneTanh(std::numeric_limits<float>::infinity()), 1.0f);
  EXPECT_EQ(OneTanh(-std::numeric_limits<float>::infinity()), -1.0f);
}

}  // namespace
}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnlab::cpu {
HWY_BEFORE_TEST(ExpTest);
HWY_EXPORT_AND_TEST_P(ExpTest, Exp2IsAccurate);
HWY_EXPORT_AND_TEST_P(ExpTest, Exp2OfSpecialValues);
HWY_EXPORT_AND_TEST_P(ExpTest, NanStaysNan);
HWY_EXPORT_AND_TEST_P(ExpTest, TanhIsAccurate);
}  // namespace attnlab::cpu
#endif  // HWY_ONCE
