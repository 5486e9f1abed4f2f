// Describes Q, K, V or O to TMA (tma.cuh).
#ifndef ATTENTION_DEVICE_HOPPER_TENSOR_MAP_H_
#define ATTENTION_DEVICE_HOPPER_TENSOR_MAP_H_

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/tensor.h"

namespace attnlab::device {

// OK, or Unimplemented if TMA cannot express the tensor: it must begin at a multiple of 16 bytes, and
// its strides must be positive multiples of 16 bytes, below 2^40. `name` is for the message. The view
// is valid (core/tensors.h).
absl::Status CheckTensorMap(absl::string_view name, const ConstTensorView& view);

// A map whose tiles have blocks of 64 columns and `rows` rows: `rows` / `pack` tokens of `pack`
// heads each, heads changing fastest. `pack` divides `rows` and the heads; `rows` is at most 256.
// The axes of an origin are column, head within the pack, token, pack of heads, batch. Of a paged K or
// V, the token is the row in its page, and the batch is the page.
//
// For a tensor without elements the map is undefined; nothing may be loaded through it. Takes about
// 100 ns. Errors: those of CheckTensorMap(), and Internal if the driver fails.
absl::StatusOr<CUtensorMap> MakeTensorMap(absl::string_view name, const ConstTensorView& view,
                                          int rows, int pack);

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_HOPPER_TENSOR_MAP_H_
