// Division by a number that is known before the launch, as a multiplication. A division takes a
// thread as long as a read from L2, and a block can do nothing before it knows which tile it has.
//
// Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994.
#ifndef ATTENTION_DEVICE_DIVISOR_H_
#define ATTENTION_DEVICE_DIVISOR_H_

#include <cstdint>

#include "attention/device/host_device.h"

namespace attnlab::device {

class Divisor {
 public:
  Divisor() = default;

  // `value`: from 1 to 2^31.
  explicit Divisor(uint32_t value) : value_(value) {
    while ((uint64_t{1} << shift_) < value) ++shift_;
    const uint64_t over = (uint64_t{1} << shift_) - value;
    multiplier_ = static_cast<uint32_t>((over << 32) / value + 1);
  }

  ATTNLAB_HOST_DEVICE uint32_t Value() const { return value_; }

  // x / Value(), for x below 2^31.
  ATTNLAB_HOST_DEVICE uint32_t Divide(uint32_t x) const {
    const uint32_t high = static_cast<uint32_t>(uint64_t{multiplier_} * x >> 32);
    return (high + x) >> shift_;
  }

 private:
  uint32_t value_ = 1, multiplier_ = 1, shift_ = 0;
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_DIVISOR_H_
