// For tests: a problem's tensors divided among ranks, and their results together.
#ifndef ATTENTION_MULTI_GPU_TESTING_ROWS_OF_RANKS_H_
#define ATTENTION_MULTI_GPU_TESTING_ROWS_OF_RANKS_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/pieces.h"
#include "attention/oracle/reference.h"

namespace attnlab::multi_gpu {

// Rows of a contiguous tensor [b, rows, heads, d] that a rank has, and back.
struct Local {
  std::vector<char> bytes;
  TensorView view;
};

template <typename Copy>
void ForRows(const std::vector<Chunk>& chunks, const TensorView& whole, const TensorView& local,
             Copy copy) {
  const int64_t bytes = whole.shape[2] * whole.shape[3] * SizeOf(whole.dtype);
  for (int64_t b = 0; b < whole.shape[0]; ++b) {
    int64_t at = 0;
    for (const Chunk& c : chunks) {
      for (int64_t row = c.begin; row < c.end; ++row, ++at) {
        copy(static_cast<char*>(whole.data) + whole.Offset(b, row, 0, 0) * SizeOf(whole.dtype),
             static_cast<char*>(local.data) + local.Offset(b, at, 0, 0) * SizeOf(whole.dtype),
             bytes);
      }
    }
  }
}

inline Local Take(const std::vector<Chunk>& chunks, const ConstTensorView& of) {
  Local local;
  const int64_t rows = RowsOf(chunks);
  local.bytes.resize(of.shape[0] * rows * of.shape[2] * of.shape[3] * SizeOf(of.dtype) + 1);
  local.view = BshdView(static_cast<void*>(local.bytes.data()), of.dtype, Device::Cpu(),
                        of.shape[0], rows, of.shape[2], of.shape[3]);
  const TensorView whole = {const_cast<void*>(of.data), of.dtype, of.device, of.shape, of.strides};
  ForRows(chunks, whole, local.view,
          [](char* from, char* to, int64_t bytes) { std::memcpy(to, from, bytes); });
  return local;
}

inline void PutBack(const std::vector<Chunk>& chunks, const TensorView& whole,
                    const TensorView& local) {
  ForRows(chunks, whole, local,
          [](char* to, char* from, int64_t bytes) { std::memcpy(to, from, bytes); });
}

// O [b, sq, hq, dv] and LSE [b, sq, hq], of all ranks together.
struct Whole {
  // `b` and `sq`: of the tensors, so packed: 1, and all tokens.
  Whole(const AttentionProblem& p, int64_t b, int64_t sq)
      : problem(p),
        o_bytes(b * sq * p.hq * p.dv * SizeOf(p.ODType()) + 1),
        logs(b * sq * p.hq + 1),
        o(BshdView(static_cast<void*>(o_bytes.data()), p.ODType(), Device::Cpu(), b, sq, p.hq,
                   p.dv)),
        lse(BshdView(static_cast<void*>(logs.data()), DType::kFloat32, Device::Cpu(), b, sq, p.hq,
                     1)) {}
  Whole(Whole&&) = default;

  // For oracle::Compare().
  oracle::Result Values(const AttentionTensors& t, const std::vector<oracle::Row>& rows) const {
    oracle::Result values;
    values.dv = problem.dv;
    for (const oracle::Row& row : rows) {
      const int64_t first = problem.lens == Lengths::kPacked ? t.cu_seqlens_q.data[row.sequence]
                                                             : row.sequence * problem.sq,
                    at = (first + row.row) * problem.hq + row.head;
      for (int64_t i = 0; i < problem.dv; ++i) {
        values.o.push_back(LoadElement(o_bytes.data(), problem.ODType(), at * problem.dv + i));
      }
      values.lse.push_back(logs[at]);
    }
    return values;
  }

  AttentionProblem problem;
  std::vector<char> o_bytes;
  std::vector<float> logs;
  TensorView o, lse;
  absl::Status status;
};

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_TESTING_ROWS_OF_RANKS_H_
