// The oracle: attention in double precision, against which every kernel is judged. Also the
// straightforward implementation in the precision of the dtype, whose error says how much error is
// fair.
//
// Both compute whole problems or single rows, so a few hundred rows of a problem that would take
// hours are checked in seconds:
//
//   std::vector<Row> rows = AllRows(problem, tensors);  // or a sample of them
//   absl::StatusOr<Result> exact = Exact(problem, tensors, rows);
//   double o = exact->O(i, c);  // element c of row rows[i]
//
// Inputs are on the host, in any dtype and in pages, with any scales, strides, head counts, masks and
// lengths. The tensors' `o` and `lse` are ignored. Both functions return
//   InvalidArgument    for what AttentionProblem::Validate() or ValidateInputs() rejects, tensors
//                      that are not on the host, and rows that do not exist;
//   ResourceExhausted  if there is too little memory for K and V of one head.
#ifndef ATTENTION_ORACLE_REFERENCE_H_
#define ATTENTION_ORACLE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"

namespace attnlab::oracle {

// Query `row` of sequence `sequence` in the batch, in query head `head`.
struct Row {
  int64_t sequence = 0;
  int64_t head = 0;
  int64_t row = 0;

  friend bool operator==(const Row& a, const Row& b) {
    return a.sequence == b.sequence && a.head == b.head && a.row == b.row;
  }
};

// Every row in use, without those beyond a sequence's length. Ordered by sequence, head, row.
std::vector<Row> AllRows(const AttentionProblem& problem, const AttentionTensors& tensors);

// Has one entry for each requested row, in the same order.
struct Result {
  int64_t dv = 0;
  std::vector<double> o;    // [rows][dv]; 0 where the row sees no key
  std::vector<double> lse;  // [rows], natural log; -infinity where the row sees no key

  // [rows]: the largest sqrt(sum over keys of (P V)²) of the row's elements: how large O would be
  // if the signs of its terms were random. Rounding errors of P have random signs, so they are
  // measured against this, and not against O, whose terms may cancel. Exact() fills it in.
  std::vector<double> spread;

  // [rows]: the size of the row's scores s = scale Q K, to which their rounding errors are
  // proportional. Without softcap it is the largest |s|. The first eight keys also count with
  // scale sqrt(sum (Q K)²): if a row has so few keys, the terms of all its scores may cancel. In fp8
  // all keys do, because an outlier of Q or K leaves few bits to the other terms of a score. With
  // softcap it is what the cap leaves of the errors: the largest of
  // (1 - tanh²(s / softcap)) scale sum |Q K| + |softcap tanh(s / softcap)|. Exact() fills it in.
  std::vector<double> score;

  double O(int64_t row, int64_t dim) const { return o[row * dv + dim]; }
};

// Computes in double from the inputs as rounded to their dtype: two passes over the keys, no tiles,
// no rescaling. `threads` = 0: all threads that the process may use.
absl::StatusOr<Result> Exact(const AttentionProblem& problem, const AttentionTensors& tensors,
                             absl::Span<const Row> rows, int threads = 0);

// The precision of the factors in the two products of Straightforward().
enum class Factors {
  kAsTheyAre,
  kTf32,  // Q, K, P and V lose the low 13 bits of their mantissa, as on TF32 tensor cores
};

// What a careful programmer writes first. Scores, softmax and sums are in fp32, each sum in order.
// P is normalised, then rounded to the dtype; in fp8 it is rounded first, as multiples of 1/256 of the
// row's largest. O is accumulated in fp32 and rounded to its dtype. LSE is in fp32. `spread` and
// `score` stay empty.
absl::StatusOr<Result> Straightforward(const AttentionProblem& problem,
                                       const AttentionTensors& tensors, absl::Span<const Row> rows,
                                       Factors factors = Factors::kAsTheyAre, int threads = 0);

// Both results for the same rows: what a kernel is judged by.
struct Oracle {
  Result exact, straightforward;
};

// The errors that both functions check for before they compute anything.
absl::Status Check(const AttentionProblem& problem, const AttentionTensors& tensors,
                   absl::Span<const Row> rows);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_REFERENCE_H_
