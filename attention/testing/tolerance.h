// How large an error may be.
//
// A kernel passes when its largest error is at most twice that of the straightforward
// implementation (reference.h) on the same rows, plus a floor. The floor is for problems so small
// that the straightforward implementation is right by luck:
//
//   O     (e + 8 e32 (1 + max |LSE|)) · max spread
//   LSE        8 e32 (1 + max |LSE|)
//
// where e = Epsilon(dtype), e32 = Epsilon(fp32), and the maxima are over the rows checked. One e
// of the spread (reference.h: the size of O if the signs of its terms were random) is what the
// rounding of P and O to the dtype comes to. Scores are about as large as LSE and have an fp32
// error of a few units in proportion; so have then P, and O. For bf16, spread 1 and LSE 4 that is
// 0.0078 + 0.000005; for fp32 5e-6.
//
// NaN never passes, unless the oracle has NaN in the same place; infinity passes where the oracle
// has it or rounds to it.
#ifndef ATTENTION_TESTING_TOLERANCE_H_
#define ATTENTION_TESTING_TOLERANCE_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "attention/dtype.h"
#include "attention/reference/reference.h"

namespace attnlab::testing {

// The largest absolute error of one tensor, its bound, and where it is.
struct TensorError {
  double max_error = 0;  // infinity for NaN and infinities out of place
  double bound = 0;
  // Of the largest error:
  reference::Row row;
  int64_t dim = 0;
  double value = 0;     // what the kernel gave
  double expected = 0;  // what the oracle gave

  bool Passed() const { return max_error <= bound; }
  // "max error 0.1 > bound 0.02 at sequence 0, head 1, row 2, dim 3: 0.3 where the oracle has 0.4"
  std::string ToString() const;
};

struct Errors {
  TensorError o, lse;
};

// `values` are a kernel's results for the rows, widened to double; `values.lse` empty: O alone is
// compared. All three results are of `rows`.
Errors Compare(DType dtype, absl::Span<const reference::Row> rows, const reference::Result& exact,
               const reference::Result& straightforward, const reference::Result& values);

}  // namespace attnlab::testing

#endif  // ATTENTION_TESTING_TOLERANCE_H_
