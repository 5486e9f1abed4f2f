// Bits that look random, from a counter: the same on every device, in every order.
#ifndef ATTENTION_CORE_MIX_H_
#define ATTENTION_CORE_MIX_H_

#include <cstdint>

namespace attnlab {

// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators): a
// bijection of 64 bits that removes visible patterns. constexpr, so that device code may call it.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// An odd number that spreads counters before they are mixed.
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

}  // namespace attnlab

#endif  // ATTENTION_CORE_MIX_H_
