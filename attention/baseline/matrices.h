// A batch of matrices, as batched matrix products take it.
#ifndef ATTENTION_BASELINE_MATRICES_H_
#define ATTENTION_BASELINE_MATRICES_H_

#include <cstdint>

namespace attnlab::baseline {

// Element (row, column) of matrix i is data[i * stride + row * row_stride + column].
struct Matrices {
  void* data = nullptr;
  int64_t stride = 0;
  int64_t row_stride = 0;
};

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_MATRICES_H_
