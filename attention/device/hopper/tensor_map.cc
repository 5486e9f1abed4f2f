#include "attention/device/hopper/tensor_map.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/cuda/driver_function.h"

namespace attnlab::device {
namespace {

constexpr int64_t kAlignment = 16;  // bytes
constexpr int64_t kMostStride = int64_t{1} << 40;
constexpr const char* kAxes[] = {"batch", "token", "head"};

// The stride in bytes. That of an axis of length 1 has no meaning, but TMA wants one.
int64_t StrideOf(const ConstTensorView& view, int axis) {
  return view.shape[axis] > 1 ? view.strides[axis] * SizeOf(view.dtype) : kAlignment;
}

CUtensorMapDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
}

bool IsEmpty(const ConstTensorView& view) {
  return std::count(view.shape.begin(), view.shape.end(), 0) > 0;
}

}  // namespace

absl::Status CheckTensorMap(absl::string_view name, const ConstTensorView& view) {
  if (IsEmpty(view)) return absl::OkStatus();  // its strides may be 0, and nothing is loaded
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % kAlignment != 0) {
    return absl::UnimplementedError(absl::StrCat(
        name, ": address ", address, " is not a multiple of ", kAlignment, ", as TMA requires"));
  }
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t stride = StrideOf(view, axis);
    if (stride > 0 && stride < kMostStride && stride % kAlignment == 0) continue;
    return absl::UnimplementedError(absl::StrCat(name, ": ", kAxes[axis], " stride of ", stride,
                                                 " bytes; TMA requires a positive multiple of ",
                                                 kAlignment, " below 2^40"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CUtensorMap> MakeTensorMap(absl::string_view name, const ConstTensorView& view,
                                          int rows, int pack) {
  CUtensorMap map = {};
  if (IsEmpty(view)) return map;
  if (absl::Status s = CheckTensorMap(name, view); !s.ok()) return s;
  static const auto encode = cuda_backend::DriverFunction<decltype(&cuTensorMapEncodeTiled)>(
      "cuTensorMapEncodeTiled", 12000);
  if (!encode.ok()) return encode.status();
  const auto size = [](int64_t x) { return static_cast<cuuint64_t>(x); };
  const auto box = [](int x) { return static_cast<cuuint32_t>(x); };
  const cuuint64_t sizes[] = {size(view.shape[3]), size(pack), size(view.shape[1]),
                              size(view.shape[2] / pack), size(view.shape[0])};
  const int64_t head = StrideOf(view, 2);
  const cuuint64_t strides[] = {size(head), size(StrideOf(view, 1)), size(head * pack),
                                size(StrideOf(view, 0))};
  const cuuint32_t tile[] = {box(128 / static_cast<int>(SizeOf(view.dtype))), box(pack),
                             box(rows / pack), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  const CUresult result =
      (*encode)(&map, TypeOf(view.dtype), 5, const_cast<void*>(view.data), sizes, strides, tile,
                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (absl::Status s = cuda_backend::DriverStatus(result, "cuTensorMapEncodeTiled"); !s.ok()) {
    return s;
  }
  return map;
}

}  // namespace attnlab::device
