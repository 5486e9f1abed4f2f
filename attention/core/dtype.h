// The element types of attention tensors, and host-side conversions.
//
// Float16, BFloat16, Float8E4M3 and Float8E5M2 are storage types: bits that convert to and from float
// and do no arithmetic of their own. Conversions to them round to nearest, ties to even. NaN stays
// NaN. Overflow gives infinity; in fp8 it gives the largest number, 448 or 57344, as on GPUs.
#ifndef ATTENTION_CORE_DTYPE_H_
#define ATTENTION_CORE_DTYPE_H_

#include <cstdint>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/cxx17.h"

namespace attnlab {

enum class DType {
  kFloat32,     // "fp32"
  kFloat16,     // "fp16": IEEE binary16
  kBFloat16,    // "bf16": the upper half of a float
  kFloat8E4M3,  // "fp8_e4m3": 4 exponent and 3 mantissa bits, no infinity
  kFloat8E5M2,  // "fp8_e5m2": the upper half of a binary16; of V only
};

// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 1;
  }
  return 0;
}

constexpr bool IsFp8(DType dtype) {
  return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
}

// "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2".
absl::string_view Name(DType dtype);

// The inverse of Name(). InvalidArgument lists the known names.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// The distance from 1 to the next larger number: 2^-23, 2^-10, 2^-7, 2^-3, 2^-2. Tolerances scale
// with it.
double Epsilon(DType dtype);

namespace internal {
inline uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
uint16_t HalfBits(float value);
float HalfToFloat(uint16_t bits);
uint8_t E4m3Bits(float value);
float E4m3ToFloat(uint8_t bits);
uint8_t E5m2Bits(float value);
}  // namespace internal

struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(internal::HalfBits(value)) {}
  explicit operator float() const { return internal::HalfToFloat(bits); }
};

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t f = internal::FloatBits(value);
    // Adding just under half a unit, plus the lowest kept bit, rounds to nearest even. A NaN
    // must not carry into infinity, so it keeps its upper half and gets a quiet bit.
    bits = value != value ? static_cast<uint16_t>((f >> 16) | 0x40)
                          : static_cast<uint16_t>((f + 0x7FFF + ((f >> 16) & 1)) >> 16);
  }
  explicit operator float() const {
    return internal::FloatFromBits(static_cast<uint32_t>(bits) << 16);
  }
};

struct Float8E4M3 {
  uint8_t bits = 0;

  Float8E4M3() = default;
  explicit Float8E4M3(float value) : bits(internal::E4m3Bits(value)) {}
  explicit operator float() const { return internal::E4m3ToFloat(bits); }
};

struct Float8E5M2 {
  uint8_t bits = 0;

  Float8E5M2() = default;
  explicit Float8E5M2(float value) : bits(internal::E5m2Bits(value)) {}
  explicit operator float() const {
    return internal::HalfToFloat(static_cast<uint16_t>(bits << 8));
  }
};

static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2 && sizeof(Float8E4M3) == 1 &&
                  sizeof(Float8E5M2) == 1,
              "storage types have no other members");

// Reads or writes element `index` of an array of `dtype`. For oracles, files and tests: it branches
// once per element, which is too slow for kernels.
float LoadElement(const void* data, DType dtype, int64_t index);
void StoreElement(void* data, DType dtype, int64_t index, float value);

}  // namespace attnlab

#endif  // ATTENTION_CORE_DTYPE_H_
