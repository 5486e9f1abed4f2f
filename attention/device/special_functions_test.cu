// On a GPU: how precise the special functions are.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/cuda/launch.h"
#include "attention/cuda/managed_array.h"
#include "attention/device/special_functions.cuh"
#include "cuda_runtime.h"
#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

enum class Function { kExp2, kReciprocal, kTanh };

__global__ void Evaluate(Function function, int count, const float* x, float* y) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    y[i] = function == Function::kExp2         ? Exp2(x[i])
           : function == Function::kReciprocal ? Reciprocal(x[i])
                                               : Tanh(x[i]);
  }
}

std::vector<float> Of(Function function, const std::vector<float>& x) {
  const int count = static_cast<int>(x.size());
  ManagedArray<float> in(x.size()), out(x.size());
  for (int i = 0; i < count; ++i) in[i] = x[i], out[i] = NAN;
  EXPECT_EQ(Launch(Evaluate, 1, 128, 0, nullptr, function, count, in.data(), out.data()),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<float> y(x.size());
  for (int i = 0; i < count; ++i) y[i] = out[i];
  return y;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Above all for 0: P of a key that outweighs all others is then 1, and O its V
// (device/warp_rows.cuh).
TEST(SpecialFunctionsTest, Exp2OfWholeNumbersIsExact) {
  std::vector<float> x;
  for (int i = -126; i <= 127; ++i) x.push_back(static_cast<float>(i));
  const std::vector<float> y = Of(Function::kExp2, x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], std::exp2(x[i])) << x[i];
}

TEST(SpecialFunctionsTest, Exp2IsRightToTwoUnitsOfTheLastBit) {
  std::vector<float> x;
  for (int i = -126 * 97; i < 128 * 97; ++i) x.push_back(static_cast<float>(i) / 97);
  const std::vector<float> y = Of(Function::kExp2, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(y[i] / std::exp2(static_cast<double>(x[i])), 1, 0x1p-22) << x[i];
  }
}

TEST(SpecialFunctionsTest, Exp2AtTheEnds) {
  const std::vector<float> y =
      Of(Function::kExp2, {-kInfinity, -3e38f, -150, 3e38f, kInfinity, NAN});
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_EQ(y[4], kInfinity);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(SpecialFunctionsTest, ReciprocalIsRightToTwoUnitsOfTheLastBit) {
  std::vector<float> x;
  for (int exponent = -120; exponent <= 120; exponent += 5) {
    for (int i = 0; i < 61; ++i) {
      const float positive = std::ldexp(1 + static_cast<float>(i) / 61, exponent);
      x.push_back(positive);
      x.push_back(-positive);
    }
  }
  const std::vector<float> y = Of(Function::kReciprocal, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(y[i]) * x[i], 1, 0x1p-22) << x[i];
  }
}

TEST(SpecialFunctionsTest, ReciprocalAtTheEnds) {
  const std::vector<float> y = Of(Function::kReciprocal, {0, kInfinity, 1, NAN});
  EXPECT_EQ(y[0], kInfinity);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 1);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST(SpecialFunctionsTest, TanhIsRightToFourUnitsOfTheLastBit) {
  std::vector<float> x;
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i) / 397);
  for (int exponent = -120; exponent < 0; ++exponent) x.push_back(std::ldexp(1.3f, exponent));
  const std::vector<float> y = Of(Function::kTanh, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::tanh(static_cast<double>(x[i]));
    EXPECT_NEAR(y[i], exact, std::fabs(exact) * 0x1p-21) << x[i];
  }
}

TEST(SpecialFunctionsTest, TanhAtTheEnds) {
  const std::vector<float> y = Of(Function::kTanh, {0, 9.5f, -3e38f, kInfinity, -kInfinity, NAN});
  EXPECT_EQ(y[0], 0);
  EXPECT_NEAR(y[1], 1, 0x1p-21);
  EXPECT_NEAR(y[2], -1, 0x1p-21);
  EXPECT_NEAR(y[3], 1, 0x1p-21);
  EXPECT_NEAR(y[4], -1, 0x1p-21);
  EXPECT_TRUE(std::isnan(y[5]));
}

}  // namespace
}  // namespace attnlab::device
