// Finds out whether a tensor, as it lies in memory, is a batch of matrices. A batched matrix
// product then takes it without a permutation.
#ifndef ATTENTION_BASELINE_AS_MATRICES_H_
#define ATTENTION_BASELINE_AS_MATRICES_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "attention/baseline/matrices.h"
#include "attention/core/tensor.h"

namespace attnlab::baseline {

// Returns the view as shape[0] * shape[2] / group matrices, one per (sequence, KV head). Each has
// group * shape[1] rows: those of the group's heads, one head after the other. Returns nullopt if
// two strides, from matrix to matrix and from row to row, cannot describe that. Also if rows
// overlap or are not aligned to 16 bytes, without which matrix products are slow.
//
//   BHSD                      yes
//   BSHD, packed QKV          yes for one sequence, unless query heads share a KV head
//   decoding, one query row   yes
absl::optional<Matrices> AsMatrices(const ConstTensorView& view, int64_t group);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_AS_MATRICES_H_
