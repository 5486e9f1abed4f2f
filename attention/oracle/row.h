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
};

// Writes o[dv], *lse, and *sizes unless it is null. `scores` is scratch for `keys` numbers.
void ExactRow(const RowInput<double>& in, double* scores, double* o, double* lse, RowSizes* sizes);

// O and P are rounded to the dtype; everything else is in fp32. `tf32`: the factors of both
// products lose their low 13 bits, because TF32 tensor cores ignore those of fp32 numbers.
void StraightforwardRow(const RowInput<float>& in, DType dtype, bool tf32, float* scores, float* o,
                        float* lse);

// Copies rows [begin, end) of one head to `out`, times `scale`, each padded with zeros to `width`
// elements.
template <typename Real>
void LoadRows(const ConstTensorView& view, int64_t batch, int64_t head, int64_t begin, int64_t end,
              int64_t width, Real* out, float scale = 1);

// The same for keys [begin, end) of a sequence, wherever they lie. `view` is K or V.
template <typename Real>
void LoadKeys(const AttentionProblem& problem, const AttentionTensors& tensors,
              const Sequence& sequence, const ConstTensorView& view, int64_t head, int64_t begin,
              int64_t end, int64_t width, Real* out, float scale) {
  for (int64_t key = begin; key < end; ++key, out += width) {
    const KeyPlace place = PlaceOf(problem, tensors, sequence, key);
    LoadRows(view, place.batch, head, place.row, place.row + 1, width, out, scale);
  }
}

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_ROW_H_
