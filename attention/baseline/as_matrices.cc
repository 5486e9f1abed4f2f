#include "attention/baseline/as_matrices.h"

#include "attention/core/dtype.h"

namespace attnlab::baseline {
namespace {

constexpr int64_t kAlignment = 16;  // bytes

}  // namespace

absl::optional<Matrices> AsMatrices(const ConstTensorView& view, int64_t group) {
  const auto [batch, length, heads, dim] = view.shape;
  const auto [batch_stride, row_stride, head_stride, dim_stride] = view.strides;
  (void)dim_stride;  // ValidateTensors() makes sure that it is 1
  const int64_t size = SizeOf(view.dtype);
  const int64_t kv_heads = heads / group;
  Matrices m;
  m.data = const_cast<void*>(view.data);

  // From row to row of a matrix.
  if (length > 1 && group > 1) {
    if (head_stride != length * row_stride) return absl::nullopt;
    m.row_stride = row_stride;
  } else if (length > 1) {
    m.row_stride = row_stride;
  } else if (group > 1) {
    m.row_stride = head_stride;
  } else {
    m.row_stride = (dim * size + kAlignment - 1) / kAlignment * kAlignment / size;
  }
  if (m.row_stride < dim) return absl::nullopt;

  // From matrix to matrix.
  if (kv_heads > 1) {
    m.stride = group * head_stride;
    if (batch > 1 && batch_stride != kv_heads * m.stride) return absl::nullopt;
  } else if (batch > 1) {
    m.stride = batch_stride;
  }

  if (reinterpret_cast<uintptr_t>(m.data) % kAlignment != 0 ||
      m.row_stride * size % kAlignment != 0 || m.stride * size % kAlignment != 0) {
    return absl::nullopt;
  }
  return m;
}

}  // namespace attnlab::baseline
