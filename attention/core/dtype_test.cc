#include "attention/core/dtype.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace attnlab {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DTypeTest, NamesParseBack) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                      DType::kFloat8E5M2}) {
    ASSERT_TRUE(ParseDType(Name(dtype)).ok()) << Name(dtype);
    EXPECT_EQ(*ParseDType(Name(dtype)), dtype);
  }
  EXPECT_EQ(ParseDType("fp64").status().message(),
            "dtype: \"fp64\" is not one of fp32, fp16, bf16, fp8_e4m3, fp8_e5m2");
}

TEST(Float16Test, EveryValueSurvivesTheWayThroughFloat) {
  for (int i = 0; i < 65536; ++i) {
    Float16 half;
    half.bits = static_cast<uint16_t>(i);
    const float value = static_cast<float>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(value)))) << i;
    } else {
      EXPECT_EQ(Float16(value).bits, half.bits) << i;
    }
  }
}

TEST(Float16Test, KnownValues) {
  EXPECT_EQ(Float16(1.0f).bits, 0x3C00);
  EXPECT_EQ(Float16(-2.0f).bits, 0xC000);
  EXPECT_EQ(Float16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(Float16(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Float16(0x1p-14f).bits, 0x0400);
  EXPECT_EQ(Float16(-0.0f).bits, 0x8000);
  EXPECT_EQ(Float16(kInfinity).bits, 0x7C00);
}

TEST(Float16Test, RoundsToNearestTiesToEven) {
  const float unit = 0x1p-10f;                               // spacing of half at 1
  EXPECT_EQ(Float16(1 + unit / 2).bits, 0x3C00);             // tie, down to even
  EXPECT_EQ(Float16(1 + 3 * unit / 2).bits, 0x3C02);         // tie, up to even
  EXPECT_EQ(Float16(1 + unit / 2 + 0x1p-20f).bits, 0x3C01);  // above the tie
  EXPECT_EQ(Float16(0x1p-25f).bits, 0x0000);                 // tie of the smallest subnormal
  EXPECT_EQ(Float16(0x1.8p-24f).bits, 0x0002);               // tie, up to even
  EXPECT_EQ(Float16(65519.996f).bits, 0x7BFF);               // below the tie with infinity
  EXPECT_EQ(Float16(65520.0f).bits, 0x7C00);                 // the tie goes to infinity
  EXPECT_EQ(Float16(0x1.ffcp-15f + 0x1p-25f).bits, 0x0400);  // subnormal up to normal
}

TEST(BFloat16Test, EveryValueSurvivesTheWayThroughFloat) {
  for (int i = 0; i < 65536; ++i) {
    BFloat16 b;
    b.bits = static_cast<uint16_t>(i);
    const float value = static_cast<float>(b);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(value)))) << i;
    } else {
      EXPECT_EQ(BFloat16(value).bits, b.bits) << i;
    }
  }
}

TEST(BFloat16Test, RoundsToNearestTiesToEven) {
  EXPECT_EQ(BFloat16(1 + 0x1p-8f).bits, 0x3F80);
  EXPECT_EQ(BFloat16(1 + 3 * 0x1p-8f).bits, 0x3F82);
  EXPECT_EQ(BFloat16(1 + 0x1p-8f + 0x1p-20f).bits, 0x3F81);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  // A NaN whose payload lies in the lower half alone must stay one.
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(internal::FloatFromBits(0x7F800001)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(internal::FloatFromBits(0xFFFFFFFF)))));
}

TEST(Float8E4M3Test, EveryValueConvertsBack) {
  for (int i = 0; i < 256; ++i) {
    Float8E4M3 e;
    e.bits = static_cast<uint8_t>(i);
    const float value = static_cast<float>(e);
    if ((i & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_EQ(Float8E4M3(value).bits, i);
      continue;
    }
    const int exponent = i >> 3 & 0xF, mantissa = i & 7;
    const float magnitude = exponent == 0 ? std::ldexp(mantissa / 8.0f, -6)
                                          : std::ldexp(1 + mantissa / 8.0f, exponent - 7);
    EXPECT_EQ(value, i < 128 ? magnitude : -magnitude) << i;
    EXPECT_EQ(Float8E4M3(value).bits, i);
  }
}

TEST(Float8E4M3Test, RoundsToNearestTiesToEvenAndSaturates) {
  for (int i = 0; i < 0x7E; ++i) {
    Float8E4M3 low, high;
    low.bits = static_cast<uint8_t>(i), high.bits = static_cast<uint8_t>(i + 1);
    const float a = static_cast<float>(low), b = static_cast<float>(high), middle = (a + b) / 2;
    EXPECT_EQ(Float8E4M3(middle).bits, i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(Float8E4M3(std::nextafter(middle, 0.0f)).bits, i);
    EXPECT_EQ(Float8E4M3(std::nextafter(middle, 1000.0f)).bits, i + 1);
    EXPECT_EQ(Float8E4M3(-middle).bits, 0x80 | (i % 2 == 0 ? i : i + 1));
  }
  EXPECT_EQ(Float8E4M3(std::numeric_limits<float>::infinity()).bits, 0x7E);
  EXPECT_EQ(Float8E4M3(-1e9f).bits, 0xFE);
}

TEST(Float8E5M2Test, EveryValueConvertsBack) {
  for (int i = 0; i < 256; ++i) {
    Float8E5M2 e;
    e.bits = static_cast<uint8_t>(i);
    const float value = static_cast<float>(e);
    const int exponent = i >> 2 & 0x1F, mantissa = i & 3;
    if (exponent == 0x1F && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_EQ(Float8E5M2(value).bits, i | 3);
      continue;
    }
    const float magnitude = exponent == 0x1F ? kInfinity
                            : exponent == 0  ? std::ldexp(mantissa / 4.0f, -14)
                                             : std::ldexp(1 + mantissa / 4.0f, exponent - 15);
    EXPECT_EQ(value, i < 128 ? magnitude : -magnitude) << i;
    // Infinity, too, saturates.
    EXPECT_EQ(Float8E5M2(value).bits, exponent == 0x1F ? i - 1 : i);
  }
}

TEST(Float8E5M2Test, RoundsToNearestTiesToEvenAndSaturates) {
  for (int i = 0; i < 0x7B; ++i) {
    Float8E5M2 low, high;
    low.bits = static_cast<uint8_t>(i), high.bits = static_cast<uint8_t>(i + 1);
    const float a = static_cast<float>(low), b = static_cast<float>(high), middle = (a + b) / 2;
    EXPECT_EQ(Float8E5M2(middle).bits, i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(Float8E5M2(std::nextafter(middle, 0.0f)).bits, i);
    EXPECT_EQ(Float8E5M2(std::nextafter(middle, 1e6f)).bits, i + 1);
    EXPECT_EQ(Float8E5M2(-middle).bits, 0x80 | (i % 2 == 0 ? i : i + 1));
  }
  EXPECT_EQ(static_cast<float>(Float8E5M2(57344.0f)), 57344);
  EXPECT_EQ(Float8E5M2(65536.0f).bits, 0x7B);
  EXPECT_EQ(Float8E5M2(-1e9f).bits, 0xFB);
}

TEST(ElementTest, LoadsWhatItStores) {
  float storage[4];
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                      DType::kFloat8E5M2}) {
    for (int i = 0; i < 4; ++i) StoreElement(storage, dtype, i, 0.5f * i - 1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(LoadElement(storage, dtype, i), 0.5f * i - 1);
  }
}

TEST(EpsilonTest, IsTheSpacingAtOne) {
  EXPECT_EQ(Epsilon(DType::kFloat32), std::numeric_limits<float>::epsilon());
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    float next = 0;
    StoreElement(&next, dtype, 0, static_cast<float>(1 + 0.51 * Epsilon(dtype)));
    EXPECT_EQ(LoadElement(&next, dtype, 0), 1 + Epsilon(dtype)) << Name(dtype);
  }
}

}  // namespace
}  // namespace attnlab
