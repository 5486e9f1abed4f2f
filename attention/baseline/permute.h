// Steps 1 and 6: copy rows between a tensor, in any order of axes, and the batch of matrices that a
// batched matrix product takes.
//
// A tensor has rows (batch, row, head); sequences of different lengths lie in it packed or padded.
// The matrices have rows (sequence, head, row), with the same number of rows for every sequence.
// Rows beyond a sequence's end are zero in the matrices and are not written in the tensor.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_BASELINE_PERMUTE_H_
#define ATTENTION_BASELINE_PERMUTE_H_

#include <cstdint>

#include "attention/baseline/matrices.h"
#include "attention/device/element.h"
#include "attention/device/sequences.h"
#include "cuda_runtime.h"

namespace attnlab::baseline {

// Rows in memory: element i of row (batch, row, head) is at data[batch * batch_stride + row *
// row_stride + head * head_stride + i].
struct Rows {
  void* data = nullptr;
  device::Element element = device::Element::kFloat32;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
};

struct PermuteTask {
  enum class Direction { kToMatrices, kToTensor };
  Direction direction = Direction::kToMatrices;
  Rows tensor;
  Matrices matrices;  // one per (sequence, head) pair, of `length` rows
  device::Element matrix_element = device::Element::kFloat32;
  // The pairs that are copied: pair i is head i % heads of sequence i / heads. Matrix 0 is that of
  // pair `first`.
  int64_t first = 0, count = 0;
  int64_t heads = 0;
  int64_t length = 0;
  int64_t columns = 0;  // elements of a row
  device::Sequences sequences;
};

// Copies elements as they are, widens them from 16 bits to fp32, or rounds them from fp32 to bf16.
// Returns cudaErrorInvalidValue for other pairs of types. Copies 16 bytes at a time if addresses
// and strides allow it.
cudaError_t Permute(const PermuteTask& task, int block, cudaStream_t stream);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_PERMUTE_H_
