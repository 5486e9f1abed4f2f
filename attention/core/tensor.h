// A strided view of attention data in host or device memory. It owns nothing.
//
// Every view has the same four logical axes, (batch, sequence, head, dim), whatever the order in
// memory. BSHD, BHSD and packed QKV differ in strides alone, so no kernel needs to know their
// names. Packed sequences of different lengths ("varlen") are a view with batch = 1 and sequence =
// the total number of tokens.
//
//   TensorView o = BshdView(data, DType::kBFloat16, device, /*b=*/2, /*s=*/512, /*h=*/8, /*d=*/64);
//   QkvViews in = PackedQkvViews(data, DType::kFloat32, Device::Cpu(), 8, 1024, 12, 64);
#ifndef ATTENTION_CORE_TENSOR_H_
#define ATTENTION_CORE_TENSOR_H_

#include <array>
#include <cstdint>
#include <string>

#include "attention/core/device.h"
#include "attention/core/dtype.h"

namespace attnlab {

// Pointer is `void*` or `const void*`.
template <typename Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::kFloat32;
  Device device;
  std::array<int64_t, 4> shape = {0, 0, 0, 0};    // batch, sequence, head, dim
  std::array<int64_t, 4> strides = {0, 0, 0, 0};  // in elements, same axes

  int64_t NumElements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }

  // Elements from `data` to element (b, s, h, i).
  int64_t Offset(int64_t b, int64_t s, int64_t h, int64_t i) const {
    return b * strides[0] + s * strides[1] + h * strides[2] + i * strides[3];
  }

  operator BasicTensorView<const void*>() const {  // NOLINT: a view of const data, like span
    return {data, dtype, device, shape, strides};
  }
};

using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;

// Sequence lengths or offsets, int32, on the device of the tensors.
struct LengthsView {
  const int32_t* data = nullptr;
  int64_t count = 0;
};

// The pages of each sequence in a paged cache, int32 [rows, columns], on the device of the tensors.
struct PageTableView {
  const int32_t* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0;  // in entries
};

// Contiguous memory [batch][sequence][head][dim].
TensorView BshdView(void* data, DType dtype, Device device, int64_t b, int64_t s, int64_t h,
                    int64_t d);
ConstTensorView BshdView(const void* data, DType dtype, Device device, int64_t b, int64_t s,
                         int64_t h, int64_t d);

// Contiguous memory [batch][head][sequence][dim].
TensorView BhsdView(void* data, DType dtype, Device device, int64_t b, int64_t s, int64_t h,
                    int64_t d);
ConstTensorView BhsdView(const void* data, DType dtype, Device device, int64_t b, int64_t s,
                         int64_t h, int64_t d);

// Contiguous fp32 memory [batch][head][sequence]: the usual layout of the log-sum-exp.
TensorView LseView(float* data, Device device, int64_t b, int64_t s, int64_t h);

struct QkvViews {
  ConstTensorView q, k, v;
};

// Contiguous memory [B, T, 3, NH, HS]: Q, K and V of a token side by side, as a fused
// projection writes them.
QkvViews PackedQkvViews(const void* data, DType dtype, Device device, int64_t b, int64_t t,
                        int64_t nh, int64_t hs);

// "bf16[2, 512, 8, 64] strides [262144, 512, 64, 1] on cpu", for messages.
std::string ToString(const ConstTensorView& view);

}  // namespace attnlab

#endif  // ATTENTION_CORE_TENSOR_H_
