#include "attention/device/divisor.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

TEST(DivisorTest, DividesAsDivisionDoes) {
  constexpr uint32_t kMost = (uint32_t{1} << 31) - 1;
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i <= 300; ++i) numbers.push_back(i);
  for (int bit = 9; bit < 31; ++bit) {
    for (const int near : {-1, 0, 1}) {
      numbers.push_back((uint32_t{1} << bit) + static_cast<uint32_t>(near));
    }
  }
  for (const uint32_t n : {12345u, 999983u, 123456789u, kMost - 1, kMost}) numbers.push_back(n);
  for (const uint32_t value : numbers) {
    if (value == 0) continue;
    const Divisor divisor(value);
    EXPECT_EQ(divisor.Value(), value);
    for (const uint32_t x : numbers) EXPECT_EQ(divisor.Divide(x), x / value) << x << " / " << value;
    // Numbers around multiples, where a quotient that is off by one shows.
    for (uint64_t q = 1; q * value <= kMost; q = q * 3 + 1) {
      const uint32_t multiple = static_cast<uint32_t>(q * value);
      EXPECT_EQ(divisor.Divide(multiple), q);
      EXPECT_EQ(divisor.Divide(multiple - 1), (multiple - 1) / value);
    }
  }
}

TEST(DivisorTest, OneIsTheDefault) {
  EXPECT_EQ(Divisor().Divide(0), 0u);
  EXPECT_EQ(Divisor().Divide(0x7FFFFFFF), 0x7FFFFFFFu);
}

}  // namespace
}  // namespace attnlab::device
