// The oracle: attention in double precision, which every kernel is judged by; and the
// straightforward implementation in the precision of the dtype, whose error says how much error
// is fair.
//
// Both take whole problems or single rows, so that a few hundred rows of a problem that would
// take hours are checked in seconds:
//
//   std::vector<Row> rows = AllRows(problem, tensors);  // or a sample of them
//   absl::StatusOr<Result> exact = Exact(problem, tensors, rows);
//   double o = exact->O(i, c);  // element c of row rows[i]
//
// Inputs are on the host, in fp32, fp16 or bf16, with any strides, head counts, masks and
// lengths; `o` and `lse` of the tensors are not looked at. Both functions return
// InvalidArgument for what AttentionProblem::Validate() or ValidateTensors() rejects, for
// tensors that are not on the host, and for rows that do not exist, Unimplemented for fp8 and for
// paged K and V, and ResourceExhausted when there is not enough memory for K and V of one head.
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

// Query `row` of sequence `sequence` (of the batch) in query head `head`.
struct Row {
  int64_t sequence = 0;
  int64_t head = 0;
  int64_t row = 0;

  friend bool operator==(const Row& a, const Row& b) {
    return a.sequence == b.sequence && a.head == b.head && a.row == b.row;
  }
};

// Every row in use: those beyond a sequence's length are left out. Ordered by sequence, head,
// row.
std::vector<Row> AllRows(const AttentionProblem& problem, const AttentionTensors& tensors);

// One entry for each of the rows asked for, in their order.
struct Result {
  int64_t dv = 0;
  std::vector<double> o;    // [rows][dv]; 0 where the row sees no key
  std::vector<double> lse;  // [rows], natural log; -infinity where the row sees no key

  // [rows]: the largest sqrt(sum over keys of (P V)²) of the row's elements: how large O would
  // be if the signs of its terms were random. Rounding errors of P have random signs, so this,
  // and not O, which may cancel, is what they are measured against. Exact() fills it in.
  std::vector<double> spread;

  // [rows]: the largest |s| of the row, s = scale Q K: what rounding errors of scores are in
  // proportion to. Of its first eight keys the largest scale sqrt(sum (Q K)²) counts as well: where
  // a row has so few, all of its scores may be small because their terms cancel. With softcap, what
  // the cap leaves of them: the largest of (1 - tanh²(s / softcap)) scale sum |Q K| + |softcap
  // tanh(s / softcap)|. Exact() fills it in.
  std::vector<double> score;

  double O(int64_t row, int64_t dim) const { return o[row * dv + dim]; }
};

// In double from the inputs as they are in their dtype: two passes over the keys, no tiles, no
// rescaling. `threads` = 0: all that the process may use.
absl::StatusOr<Result> Exact(const AttentionProblem& problem, const AttentionTensors& tensors,
                             absl::Span<const Row> rows, int threads = 0);

// Of the two products in Straightforward().
enum class Factors {
  kAsTheyAre,
  kTf32,  // Q, K, P and V lose the low 13 bits of their mantissa, as on TF32 tensor cores
};

// What a careful programmer writes first: scores, softmax and sums in fp32, each sum in order; P
// normalised, then rounded to the dtype; O accumulated in fp32 and rounded to the dtype; LSE in
// fp32. `spread` and `score` stay empty.
absl::StatusOr<Result> Straightforward(const AttentionProblem& problem,
                                       const AttentionTensors& tensors, absl::Span<const Row> rows,
                                       Factors factors = Factors::kAsTheyAre, int threads = 0);

// Both, of the same rows: what a kernel is judged by.
struct Oracle {
  Result exact, straightforward;
};

// The errors that both have before they compute anything.
absl::Status Check(const AttentionProblem& problem, const AttentionTensors& tensors,
                   absl::Span<const Row> rows);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_REFERENCE_H_
