#include "attention/core/dtype.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attnlab {

absl::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat16:
      return "fp16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat8E4M3:
      return "fp8_e4m3";
    case DType::kFloat8E5M2:
      return "fp8_e5m2";
  }
  return "unknown";
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                      DType::kFloat8E5M2}) {
    if (name == Name(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype: \"", name, "\" is not one of fp32, fp16, bf16, fp8_e4m3, fp8_e5m2"));
}

double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return std::ldexp(1.0, -23);
    case DType::kFloat16:
      return std::ldexp(1.0, -10);
    case DType::kBFloat16:
      return std::ldexp(1.0, -7);
    case DType::kFloat8E4M3:
      return std::ldexp(1.0, -3);
    case DType::kFloat8E5M2:
      return std::ldexp(1.0, -2);
  }
  return 0;
}

namespace internal {

uint16_t HalfBits(float value) {
  const uint32_t f = FloatBits(value);
  const uint16_t sign = static_cast<uint16_t>((f >> 16) & 0x8000);
  const uint32_t magnitude = f & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;   // NaN
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // rounds past 65504
  if (magnitude < 0x38800000) {                       // below 2^-14: subnormal in half
    // Adding 0.5 aligns the float's last mantissa bit with 2^-24, the subnormal unit, and lets
    // the adder round to nearest even.
    const float aligned = FloatFromBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (FloatBits(aligned) - FloatBits(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0x1F) return FloatFromBits(sign | 0x7F800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return FloatFromBits(sign | FloatBits(magnitude));
  }
  return FloatFromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint8_t E4m3Bits(float value) {
  const uint8_t sign = static_cast<uint8_t>(FloatBits(value) >> 24 & 0x80);
  const float magnitude = std::fabs(value);
  if (magnitude != magnitude) return sign | 0x7F;  // NaN
  if (magnitude >= 448) return sign | 0x7E;
  // Below 2^-6 numbers are subnormal, with a spacing of 2^-9. As in HalfBits(), the adder rounds.
  if (magnitude < 0x1p-6f) {
    const float aligned = magnitude + 0x1p14f;
    return static_cast<uint8_t>(sign | (FloatBits(aligned) - FloatBits(0x1p14f)));
  }
  const uint32_t f = FloatBits(magnitude), rounded = f + 0x7FFFF + ((f >> 20) & 1);
  return static_cast<uint8_t>(sign | ((rounded - (120u << 23)) >> 20));
}

float E4m3ToFloat(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
  const uint32_t exponent = bits >> 3 & 0xF, mantissa = bits & 7;
  if (exponent == 0xF && mantissa == 7) return FloatFromBits(sign | 0x7FC00000);
  if (exponent == 0) {
    return FloatFromBits(sign | FloatBits(static_cast<float>(mantissa) * 0x1p-9f));
  }
  return FloatFromBits(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

uint8_t E5m2Bits(float value) {
  const uint8_t sign = static_cast<uint8_t>(FloatBits(value) >> 24 & 0x80);
  const float magnitude = std::fabs(value);
  if (magnitude != magnitude) return sign | 0x7F;  // NaN
  if (magnitude >= 57344) return sign | 0x7B;
  // Below 2^-14 numbers are subnormal, with a spacing of 2^-16. As in HalfBits(), the adder rounds.
  if (magnitude < 0x1p-14f) {
    const float aligned = magnitude + 0x1p7f;
    return static_cast<uint8_t>(sign | (FloatBits(aligned) - FloatBits(0x1p7f)));
  }
  const uint32_t f = FloatBits(magnitude), rounded = f + 0xFFFFF + ((f >> 21) & 1);
  return static_cast<uint8_t>(sign | ((rounded - (112u << 23)) >> 21));
}

}  // namespace internal

float LoadElement(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(data)[index];
    case DType::kFloat16:
      return static_cast<float>(static_cast<const Float16*>(data)[index]);
    case DType::kBFloat16:
      return static_cast<float>(static_cast<const BFloat16*>(data)[index]);
    case DType::kFloat8E4M3:
      return static_cast<float>(static_cast<const Float8E4M3*>(data)[index]);
    case DType::kFloat8E5M2:
      return static_cast<float>(static_cast<const Float8E5M2*>(data)[index]);
  }
  return std::nanf("");
}

void StoreElement(void* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kFloat32:
      static_cast<float*>(data)[index] = value;
      return;
    case DType::kFloat16:
      static_cast<Float16*>(data)[index] = Float16(value);
      return;
    case DType::kBFloat16:
      static_cast<BFloat16*>(data)[index] = BFloat16(value);
      return;
    case DType::kFloat8E4M3:
      static_cast<Float8E4M3*>(data)[index] = Float8E4M3(value);
      return;
    case DType::kFloat8E5M2:
      static_cast<Float8E5M2*>(data)[index] = Float8E5M2(value);
      return;
  }
}

}  // namespace attnlab
