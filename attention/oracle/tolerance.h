// How large an error may be.
//
// A row of O is as precise as its numbers are large. Over a thousand keys O is small, because its
// terms cancel; over one key it is V. So errors are measured in a unit of their row: the larger of
// its spread (reference.h: the size of O if the signs of its terms were random) and its largest
// |O|. For LSE the unit is 1 + the row's largest |score| (reference.h says what that is where
// terms cancel, or scores are capped) or |LSE|. In these units a kernel may err twice as much as
// the straightforward implementation does on the worst of the same rows, plus a floor, for problems
// so small that the straightforward implementation is right by luck:
//
//   O     |error| <= 2 fair u + (e / 2 + 8 e32 (1 + the row's |score|)) u + spacing
//   LSE   |error| <= 2 fair u + 8 e32 u
//
// where u is the row's unit, `spacing` that of the dtype's denormals, `fair` the straightforward
// implementation's largest error in units, e = Epsilon(dtype) and e32 = Epsilon(fp32). e / 2 is
// what rounding O to the dtype may cost; scores have an fp32 error of a few units in proportion to
// their size, and so have P, and O. For bf16, u = 1 and scores to 4 the floor is 0.0039; for fp32
// 5e-6.
//
// Where factors are TF32 its epsilon, 2^-10, takes the place of 8 e32.
//
// An element that is not finite gives its row no unit and no allowance.
//
// NaN never passes, unless the oracle has NaN in the same place; infinity passes where the oracle
// has it or rounds to it.
#ifndef ATTENTION_ORACLE_TOLERANCE_H_
#define ATTENTION_ORACLE_TOLERANCE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "attention/core/dtype.h"
#include "attention/oracle/reference.h"

namespace attnlab::oracle {

// The error of one tensor that comes closest to its bound, or goes furthest beyond it, and where.
struct TensorError {
  double max_error = 0;  // absolute; infinity for NaN and infinities out of place
  double bound = 0;      // of its row
  Row row;
  int64_t dim = 0;
  double value = 0;     // what the kernel gave
  double expected = 0;  // what the oracle gave

  bool Passed() const { return max_error <= bound; }
  // "error 0.1 > bound 0.02 at sequence 0, head 1, row 2, dim 3: 0.3 where the oracle has 0.4"
  std::string ToString() const;
};

struct Errors {
  TensorError o, lse;
};

// `values` are a kernel's results for the rows, widened to double; `values.lse` empty: O alone is
// compared. All three results are of `rows`.
Errors Compare(DType dtype, absl::Span<const Row> rows, const Result& exact,
               const Result& straightforward, const Result& values,
               Factors factors = Factors::kAsTheyAre);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_TOLERANCE_H_
