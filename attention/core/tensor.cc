#include "attention/core/tensor.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab {
namespace {

template <typename Pointer>
BasicTensorView<Pointer> Bshd(Pointer data, DType dtype, Device device, int64_t b, int64_t s,
                              int64_t h, int64_t d) {
  return {data, dtype, device, {b, s, h, d}, {s * h * d, h * d, d, 1}};
}

template <typename Pointer>
BasicTensorView<Pointer> Bhsd(Pointer data, DType dtype, Device device, int64_t b, int64_t s,
                              int64_t h, int64_t d) {
  return {data, dtype, device, {b, s, h, d}, {h * s * d, d, s * d, 1}};
}

}  // namespace

TensorView BshdView(void* data, DType dtype, Device device, int64_t b, int64_t s, int64_t h,
                    int64_t d) {
  return Bshd(data, dtype, device, b, s, h, d);
}
ConstTensorView BshdView(const void* data, DType dtype, Device device, int64_t b, int64_t s,
                         int64_t h, int64_t d) {
  return Bshd(data, dtype, device, b, s, h, d);
}
TensorView BhsdView(void* data, DType dtype, Device device, int64_t b, int64_t s, int64_t h,
                    int64_t d) {
  return Bhsd(data, dtype, device, b, s, h, d);
}
ConstTensorView BhsdView(const void* data, DType dtype, Device device, int64_t b, int64_t s,
                         int64_t h, int64_t d) {
  return Bhsd(data, dtype, device, b, s, h, d);
}

TensorView LseView(float* data, Device device, int64_t b, int64_t s, int64_t h) {
  return Bhsd<void*>(data, DType::kFloat32, device, b, s, h, 1);
}

QkvViews PackedQkvViews(const void* data, DType dtype, Device device, int64_t b, int64_t t,
                        int64_t nh, int64_t hs) {
  const int64_t token = 3 * nh * hs;
  const char* bytes = static_cast<const char*>(data);
  const auto part = [&](int64_t index) -> ConstTensorView {
    const void* start = bytes == nullptr
                            ? nullptr
                            : static_cast<const void*>(bytes + index * nh * hs * SizeOf(dtype));
    return {start, dtype, device, {b, t, nh, hs}, {t * token, token, hs, 1}};
  };
  return {part(0), part(1), part(2)};
}

std::string ToString(const ConstTensorView& view) {
  return absl::StrCat(Name(view.dtype), "[", absl::StrJoin(view.shape, ", "), "] strides [",
                      absl::StrJoin(view.strides, ", "), "] on ", ToString(view.device));
}

}  // namespace attnlab
