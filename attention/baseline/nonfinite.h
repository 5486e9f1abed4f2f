// NaN and infinity, found and taken out by their bits: in units of 16 and 32 bits, whatever
// elements these have. Plain arithmetic, for the host too.
#ifndef ATTENTION_BASELINE_NONFINITE_H_
#define ATTENTION_BASELINE_NONFINITE_H_

#include <cstdint>

#include "attention/device/element.h"
#include "attention/device/host_device.h"

namespace attnlab::baseline {

// The bits of an exponent, which NaN and infinity have all of: in both halves of the word where
// elements have 16 bits.
ATTNLAB_HOST_DEVICE constexpr uint32_t ExponentBits(device::Element element) {
  return element == device::Element::kFloat16    ? 0x7C007C00
         : element == device::Element::kBFloat16 ? 0x7F807F80
                                                 : 0x7F800000;
}

// Replaces what is not finite in a word, one element or two, by 0. True if there was something.
ATTNLAB_HOST_DEVICE inline bool TakeOut(uint32_t exponent, uint32_t* word) {
  const uint32_t low = exponent & 0xFFFF, high = exponent & 0xFFFF0000;
  if (low == 0) {  // one element
    if ((*word & high) != high) return false;
    *word = 0;
    return true;
  }
  const bool low_is = (*word & low) == low, high_is = (*word & high) == high;
  if (low_is) *word &= 0xFFFF0000;
  if (high_is) *word &= 0xFFFF;
  return low_is || high_is;
}

// The same for one element of 16 bits.
ATTNLAB_HOST_DEVICE inline bool TakeOut(uint32_t exponent, uint16_t* element) {
  const uint32_t low = exponent & 0xFFFF;
  if ((*element & low) != low) return false;
  *element = 0;
  return true;
}

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_NONFINITE_H_
