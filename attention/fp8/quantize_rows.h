// What device code knows of a call of Quantize(): one of Q, K and V as plain numbers.
#ifndef ATTENTION_FP8_QUANTIZE_ROWS_H_
#define ATTENTION_FP8_QUANTIZE_ROWS_H_

#include <cmath>
#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/host_device.h"
#include "attention/device/sequences.h"

namespace attnlab::fp8 {

struct QuantizeRows {
  device::Rows from, to;
  float* scales = nullptr;
  int64_t scale_strides[3] = {};  // sequence, block, head; 0: all have one
  // The sequences of these rows, and those of K, at whose end the last query lies.
  device::Sequences sequences, kv_sequences;
  int64_t b = 1;
  int32_t heads = 1, d = 0;
  int32_t block = 64;      // rows of a block, 64 or 128, which have one factor
  int32_t blocks = 1;      // of the longest sequence
  bool one_scale = false;  // whether blocks share scales
  bool e5m2 = false;       // `to` is fp8_e5m2
  bool hadamard = false;
  uint64_t seed = 0;
  const float* table = nullptr;  // of rotary angles; null: not rotated
  int64_t position_stride = 0, positions = 0;
  int32_t rotary_dim = 0;
  bool interleaved = false;
};

// The largest numbers of fp8_e4m3 and fp8_e5m2, and the least scale. A block of zeros has that one: kernels take a block of V
// with a larger scale for one with larger numbers. After a Hadamard matrix, scales are still to be multiplied by
// HadamardFactor(), which is 1/32 or more.
constexpr float kLargest = 448, kLargestE5m2 = 57344;
constexpr float kLeastScale = 0x1p-64f, kLeastOfProducts = 32 * kLeastScale;

// A row that is turned or multiplied is rounded to fp16 after it is turned, and so are all sums and quotients:
// two elements fit a register. If the largest size of a block's products is not in fp16's range, or so small
// that what fp16 loses of elements below 2^-14 would show, they are computed again, from elements times a power
// of two. The largest of those is in [32, 64), so that a sum of 512 is in that range, or below if it would
// take a power above 126.
//
// Whether products of this largest size are kept. What is lost of up to d small elements adds up.
ATTNLAB_HOST_DEVICE inline bool FitsHalf(float largest, bool hadamard) {
  return largest >= (hadamard ? 4.0f : 0x1p-4f) && largest <= 65504;
}
// The power of two, for the largest size of an element that is turned, but not multiplied.
ATTNLAB_HOST_DEVICE inline float FactorForHalf(float largest) {
  if (!(largest > 0 && largest < INFINITY)) return 1;
  const int exponent = 5 - ilogbf(largest);
  return ldexpf(1, exponent < 126 ? exponent : 126);
}
// What products are multiplied by, still to be rounded to fp16, where elements are multiplied by `inverse`.
// With a scale of much larger blocks it is subnormal in fp16: a product is then off by up to 2^-9 of the scale.
ATTNLAB_HOST_DEVICE inline float InverseInHalf(float inverse, float factor) {
  const float its = inverse / factor;
  return its > 65504 ? 65504 : its;  // of zeros; NaN stays
}

// Whether there is code for rows of d elements.
constexpr bool HasCode(int64_t d) { return d == 64 || d == 96 || d == 128 || d == 192 || d == 256; }

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_QUANTIZE_ROWS_H_
