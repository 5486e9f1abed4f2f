// Steps 1 and 6: rows between a tensor, in whatever order it has, and a batch of matrices, which is
// what a batched matrix product takes.
//
// A tensor has rows (batch, row, head); sequences of different lengths lie in it packed or padded.
// The matrices have rows (sequence, head, row), every sequence with the same number of rows. What a
// sequence does not have is zero in the matrices and is not written in the tensor.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_BASELINE_PERMUTE_H_
#define ATTENTION_BASELINE_PERMUTE_H_

#include <cstdint>

#include "attention/baseline/matrices.h"
#include "attention/device/element.h"
#include "attention/device/sequences.h"
#include "cuda_runtime.h"

namespace attnlab::baseline {

// Rows somewhere in memory: element i of row (batch, row, head) is at
// data[batch * batch_stride + row * row_stride + head * head_stride + i].
struct Rows {
  void* data = nullptr;
  device::Element element = device::Element::kFloat32;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
};

struct PermuteTask {
  enum class Direction { kToMatrices, kToTensor };
  Direction direction = Direction::kToMatrices;
  Rows tensor;
  Matrices matrices;  // one a (sequence, head) pair, of `length` rows
  device::Element matrix_element = device::Element::kFloat32;
  // The pairs that are copied, pair i being head i % heads of sequence i / heads. Matrix 0 is that
  // of pair `first`.
  int64_t first = 0, count = 0;
  int64_t heads = 0;
  int64_t length = 0;
  int64_t columns = 0;  // elements of a row
  device::Sequences sequences;
};

// Elements are copied as they are, or widened from 16 bits to fp32, or rounded from fp32 to bf16;
// cudaErrorInvalidValue for other pairs. 16 bytes at a time where addresses and strides allow.
cudaError_t Permute(const PermuteTask& task, int block, cudaStream_t stream);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_PERMUTE_H_
