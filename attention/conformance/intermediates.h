// The check of S and P from a kernel that forms them (Intermediates in kernel.h): each element
// against double precision.
//
//   S     |error| <= e32 ((8 + d / 4) m + 4 |S|),  m = scale * sum of |Q K| over the head dim;
//         hidden keys are minus infinity
//   P     |error| <= (2 s + e32 (8 + 4 |S|) + e / 2) P + spacing,  s = the largest bound of S in the
//         row; hidden keys are 0
//
// with e32 = Epsilon(fp32), e = Epsilon(dtype) and |S| the row's largest score, before softcap
// where there is one. Sums in fp32 err by less, the wrong mask, scale or softcap by more.
#ifndef ATTENTION_CONFORMANCE_INTERMEDIATES_H_
#define ATTENTION_CONFORMANCE_INTERMEDIATES_H_

#include "absl/status/status.h"
#include "attention/conformance/problems.h"
#include "attention/conformance/subject.h"

namespace attnlab::conformance {

// conformance.h: gives_its_scores. Of problems with much work a part of the rows.
absl::Status GivesItsScores(const Subject& subject, const Case& c);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_INTERMEDIATES_H_
