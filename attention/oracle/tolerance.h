// How large an error may be.
//
// The error of a row of O scales with the numbers in it. Over a thousand keys O is small, because
// its terms cancel; over one key it is V. So each row has a unit u, in which its errors are
// measured:
//
//   O     u = the larger of its spread (reference.h: the size of O if the signs of its terms were
//         random) and its largest |O|
//   LSE   u = 1 + the larger of |LSE| and the row's score (reference.h: its largest |score|, with
//         the cases of cancelling terms and softcap)
//
// In these units a kernel may err twice as much as the straightforward implementation does on the
// worst of the same rows, plus a floor. The floor is for problems so small that the straightforward
// implementation is right by luck:
//
//   O     |error| <= 2 fair u + (e / 2 + 8 e32 u_lse) u + spacing
//   LSE   |error| <= 2 fair u + 8 e32 u
//
// where `fair` is the straightforward implementation's largest error in units, u_lse the row's unit
// of LSE, `spacing` that of the denormals of O's dtype, e = Epsilon(dtype) and e32 = Epsilon(fp32).
// e / 2 is the cost of rounding O to the dtype. In fp8 it is e, the cost of rounding P: if the scale of V is
// part of P, equal weights of a block of keys are rounded alike, and their errors add up.
// Scores have an fp32 error of a few units in proportion to their size, and so have P and O. With u = 1
// and scores up to 4 the floor is 0.0039 for bf16 and 5e-6 for fp32.
//
// 2^-10 replaces 8 e32 if factors are TF32, whose epsilon that is. If Q and K are fp8 it is 2^-9, because
// tensor cores add their products with about 14 bits: with an outlier of 32 among 128 terms, errors of
// 2^-9.6 of the score were measured.
//
// An element that is not finite adds nothing to its row's unit or allowance.
//
// NaN passes only where the oracle has NaN. Infinity passes only where the oracle has it or rounds
// to it.
#ifndef ATTENTION_ORACLE_TOLERANCE_H_
#define ATTENTION_ORACLE_TOLERANCE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "attention/core/dtype.h"
#include "attention/oracle/reference.h"

namespace attnlab::oracle {

// The error of one tensor that is largest in proportion to its bound, and where it is.
struct TensorError {
  double max_error = 0;  // absolute; infinity for misplaced NaN and infinities
  double bound = 0;      // of the row
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

// `values` are a kernel's results for the rows, widened to double. If `values.lse` is empty, only O
// is compared. All three results are for `rows`.
Errors Compare(DType dtype, DType o_dtype, absl::Span<const Row> rows, const Result& exact,
               const Result& straightforward, const Result& values,
               Factors factors = Factors::kAsTheyAre);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_TOLERANCE_H_
