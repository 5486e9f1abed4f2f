// Whether a tensor is a batch of matrices as it lies, so that a batched matrix product takes it
// without a permutation.
#ifndef ATTENTION_BASELINE_AS_MATRICES_H_
#define ATTENTION_BASELINE_AS_MATRICES_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "attention/baseline/matrices.h"
#include "attention/core/tensor.h"

namespace attnlab::baseline {

// The view as shape[0] * shape[2] / group matrices, one a KV head of a sequence, each of
// group * shape[1] rows: the rows of the group's heads one head after the other. nullopt where no
// two strides (from matrix to matrix, from row to row) say that, where rows overlap, or where they
// are not aligned to 16 bytes, without which matrix products are slow.
//
//   BHSD                      yes
//   BSHD, packed QKV          with one sequence, yes, unless query heads share a KV head
//   decoding, one query row   yes
absl::optional<Matrices> AsMatrices(const ConstTensorView& view, int64_t group);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_AS_MATRICES_H_
