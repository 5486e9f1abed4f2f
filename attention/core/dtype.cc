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
  }
  return "unknown";
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3}) {
    if (name == Name(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype: \"", name, "\" is not one of fp32, fp16, bf16, fp8_e4m3"));
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
      break;
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
      return;
  }
}

}  // namespace attnlab
