#include "tools/npy_type.h"

namespace attnlab {

int64_t SizeOf(NpyType type) {
  switch (type) {
    case NpyType::kFloat16:
    case NpyType::kBFloat16:
      return 2;
    case NpyType::kFloat32:
    case NpyType::kInt32:
      return 4;
    case NpyType::kFloat64:
    case NpyType::kInt64:
      return 8;
  }
  return 0;
}

absl::string_view Name(NpyType type) {
  switch (type) {
    case NpyType::kFloat16:
      return "fp16";
    case NpyType::kFloat32:
      return "fp32";
    case NpyType::kFloat64:
      return "fp64";
    case NpyType::kBFloat16:
      return "bf16";
    case NpyType::kInt32:
      return "int32";
    case NpyType::kInt64:
      return "int64";
  }
  return "unknown";
}

NpyType NpyTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return NpyType::kFloat16;
    case DType::kBFloat16:
      return NpyType::kBFloat16;
    case DType::kFloat32:
    case DType::kFloat8E4M3:
      break;
  }
  return NpyType::kFloat32;
}

absl::string_view Descr(NpyType type) {
  switch (type) {
    case NpyType::kFloat16:
      return "<f2";
    case NpyType::kFloat32:
      return "<f4";
    case NpyType::kFloat64:
      return "<f8";
    case NpyType::kBFloat16:
      return "<V2";
    case NpyType::kInt32:
      return "<i4";
    case NpyType::kInt64:
      return "<i8";
  }
  return "";
}

}  // namespace attnlab
