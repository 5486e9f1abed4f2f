// What device code knows of a call of Quantize(): one of Q, K and V as plain numbers.
#ifndef ATTENTION_FP8_QUANTIZE_ROWS_H_
#define ATTENTION_FP8_QUANTIZE_ROWS_H_

#include <cstdint>

#include "attention/device/arguments.h"
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
  int32_t block = 64;      // rows of a block, 64 or 128
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

// Whether there is code for rows of d elements.
constexpr bool HasCode(int64_t d) { return d == 64 || d == 96 || d == 128 || d == 192 || d == 256; }

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_QUANTIZE_ROWS_H_
