// Multiplies rows by an orthogonal matrix that spreads large elements over the others.
//
// H D, where D has random signs on its diagonal, and H is a Hadamard matrix divided by the root of its
// size. If rows of Q and K are both multiplied by it, Q Kᵀ stays what it is, but an element that is a
// hundred times larger than the others is now in all of them, at a tenth of its size. So the scale that
// it sets for fp8 takes less from the others. (Tseng et al., "QuIP#", 2024, call it incoherent
// processing; so does FlashAttention-3.)
//
// The division is one factor of all elements. It becomes part of their scale.
//
// A row of d elements is cut into blocks of the largest power of two that divides d: 96 into three of 32.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_FP8_HADAMARD_H_
#define ATTENTION_FP8_HADAMARD_H_

#include <cmath>
#include <cstdint>

#include "attention/core/mix.h"
#include "attention/device/host_device.h"

namespace attnlab::fp8 {

// The size of the blocks of a row of d elements.
ATTNLAB_HOST_DEVICE constexpr int64_t HadamardBlock(int64_t d) { return d & -d; }

// Whether D has a minus sign for column `column`.
ATTNLAB_HOST_DEVICE inline bool IsNegated(uint64_t seed, int64_t column) {
  return (Mix(seed + kGolden * static_cast<uint64_t>(column + 1)) & 1) != 0;
}

// What the product still has to be multiplied by.
ATTNLAB_HOST_DEVICE inline float HadamardFactor(int64_t d) {
  return 1 / sqrtf(static_cast<float>(HadamardBlock(d)));
}

// Replaces a row of d elements by its product, not yet multiplied by HadamardFactor(). `round` rounds each sum.
template <typename Round>
void MultiplyByHadamard(float* row, int64_t d, uint64_t seed, const Round& round) {
  const int64_t block = HadamardBlock(d);
  for (int64_t i = 0; i < d; ++i) row[i] = IsNegated(seed, i) ? -row[i] : row[i];
  // In each step, pairs of elements become their sum and their difference.
  for (int64_t step = 1; step < block; step *= 2) {
    for (int64_t i = 0; i < d; ++i) {
      if ((i & step) != 0) continue;
      const float a = row[i], b = row[i + step];
      row[i] = round(a + b);
      row[i + step] = round(a - b);
    }
  }
}

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_HADAMARD_H_
