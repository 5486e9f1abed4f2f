// One query row of attention, in double and in the precision of the dtype. Everything else is
// measured by these two functions; the code around them only finds the data.
#ifndef ATTENTION_ORACLE_ROW_H_
#define ATTENTION_ORACLE_ROW_H_

#include <cstdint>

#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"

namespace attnlab::oracle {

// Rows of Q and K are padded with zeros to a multiple of this many elements, so that the inner loop
// of the dot product has no tail.
constexpr int64_t kLanes = 8;
constexpr int64_t Padded(int64_t dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

// What a row sees: its query, and the keys and values that the mask lets through.
template <typename Real>
struct RowInput {
  const Real* q = nullptr;  // [Padded(d)]
  const Real* k = nullptr;  // [keys][Padded(d)]
  const Real* v = nullptr;  // [keys][dv]
  int64_t keys = 0;
  int64_t d = 0;
  int64_t dv = 0;
  float scale = 1;
  float softcap = 0;  // 0: none
};

// The size of a row's numbers, to which its rounding errors are proportional.
struct RowSizes {
  double* spread = nullptr;  // [dv]: sum over keys of (P V)²
  double score = 0;          // see Result::score
  bool all_keys = false;     // whether the terms of all scores count for it, not of the first few
};

// Writes o[dv], *lse, and *sizes unless it is null. `scores` is scratch for `keys` numbers.
void ExactRow(const RowInput<double>& in, double* scores, double* o, double* lse, RowSizes* sizes);

// P is rounded to the dtype, and O to `o_dtype`; everything else is in fp32. In fp8 small P would
// become 0, so it is the exponentials that are rounded, times 256 (kFp8Weight), and O is divided by
// their sum. `tf32`: the factors of both products lose their low 13 bits, because TF32 tensor cores
// ignore those of fp32 numbers.
void StraightforwardRow(const RowInput<float>& in, DType dtype, DType o_dtype, bool tf32,
                        float* scores, float* o, float* lse);

// The largest weight in fp8: a power of two, below the largest number.
constexpr float kFp8Weight = 256;

// Copies a row of one head to `out`, times `scale`, padded with zeros to `width` elements.
template <typename Real>
void LoadRow(const ConstTensorView& view, int64_t batch, int64_t head, int64_t row, int64_t width,
             Real* out, float scale);

// The same for a query of sequence `index`.
template <typename Real>
void LoadQuery(const AttentionProblem& problem, const AttentionTensors& tensors,
               const Sequence& sequence, int64_t index, int64_t head, int64_t row, Real* out) {
  LoadRow(tensors.q, sequence.q_batch, head, sequence.q_begin + row, Padded(problem.d), out,
          ScaleOf(problem, tensors.q_scale, index, head, row));
}

// The same for its keys [begin, end), wherever they lie. `view` is K or V, with `scales`.
template <typename Real>
void LoadKeys(const AttentionProblem& problem, const AttentionTensors& tensors,
              const Sequence& sequence, int64_t index, const ConstTensorView& view,
              const ConstTensorView& scales, int64_t head, int64_t begin, int64_t end,
              int64_t width, Real* out) {
  for (int64_t key = begin; key < end; ++key, out += width) {
    const KeyPlace place = PlaceOf(problem, tensors, sequence, key);
    LoadRow(view, place.batch, head, place.row, width, out,
            ScaleOf(problem, scales, index, head, key));
  }
}

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_ROW_H_
