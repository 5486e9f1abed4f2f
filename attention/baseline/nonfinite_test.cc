#include "attention/baseline/nonfinite.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::baseline {
namespace {

using device::Element;

// Of each 16-bit type: numbers that stay, and what is taken out.
const std::vector<uint16_t> kFiniteHalf = {0x0000, 0x8000, 0x0001, 0x3C00, 0x7BFF, 0xFBFF};
const std::vector<uint16_t> kOtherHalf = {0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFFFF, 0x7FA5};
const std::vector<uint16_t> kFiniteBrain = {0x0000, 0x8000, 0x0001, 0x3F80, 0x7F7F, 0xFF7F};
const std::vector<uint16_t> kOtherBrain = {0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF, 0x7FA5};

void TestHalves(Element type, const std::vector<uint16_t>& finite,
                const std::vector<uint16_t>& other) {
  const uint32_t bits = ExponentBits(type);
  for (uint16_t x : finite) {
    uint16_t one = x;
    EXPECT_FALSE(TakeOut(bits, &one)) << x;
    EXPECT_EQ(one, x);
    for (uint16_t y : finite) {
      uint32_t word = uint32_t{y} << 16 | x;
      EXPECT_FALSE(TakeOut(bits, &word));
      EXPECT_EQ(word, uint32_t{y} << 16 | x);
    }
  }
  for (uint16_t x : other) {
    uint16_t one = x;
    EXPECT_TRUE(TakeOut(bits, &one)) << x;
    EXPECT_EQ(one, 0);
    for (uint16_t y : finite) {
      uint32_t low = uint32_t{y} << 16 | x, high = uint32_t{x} << 16 | y;
      EXPECT_TRUE(TakeOut(bits, &low));
      EXPECT_EQ(low, uint32_t{y} << 16);
      EXPECT_TRUE(TakeOut(bits, &high));
      EXPECT_EQ(high, y);
    }
    uint32_t both = uint32_t{x} << 16 | x;
    EXPECT_TRUE(TakeOut(bits, &both));
    EXPECT_EQ(both, 0u);
  }
}

TEST(TakeOutTest, Fp16) { TestHalves(Element::kFloat16, kFiniteHalf, kOtherHalf); }
TEST(TakeOutTest, Bf16) { TestHalves(Element::kBFloat16, kFiniteBrain, kOtherBrain); }

TEST(TakeOutTest, Fp32) {
  const uint32_t bits = ExponentBits(Element::kFloat32);
  for (uint32_t x : {0u, 0x80000000u, 1u, 0x3F800000u, 0x7F7FFFFFu, 0xFF7FFFFFu, 0x0000FFFFu}) {
    uint32_t word = x;
    EXPECT_FALSE(TakeOut(bits, &word)) << x;
    EXPECT_EQ(word, x);
  }
  for (uint32_t x : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x7FA57FA5u, 0xFFFFFFFFu}) {
    uint32_t word = x;
    EXPECT_TRUE(TakeOut(bits, &word)) << x;
    EXPECT_EQ(word, 0u);
  }
}

}  // namespace
}  // namespace attnlab::baseline
