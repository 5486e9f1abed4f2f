// Checks S and P of a kernel that forms them (Intermediates in kernel.h): each element against
// double precision.
//
//   S     |error| <= e32 ((8 + d / 4) m + 4 |S|),  m = scale * sum of |Q K| over the head dim;
//         hidden keys are minus infinity
//   P     |error| <= (2 s + e32 (8 + 4 |S|) + e / 2) P + spacing,  s = the largest bound of S in
//         the row; hidden keys are 0
//
// where e32 = Epsilon(fp32), e = Epsilon(dtype), and |S| is the row's largest score, taken before
// softcap if there is one. Sums in fp32 err by less; a wrong mask, scale or softcap errs by more.
#ifndef ATTENTION_CONFORMANCE_INTERMEDIATES_H_
#define ATTENTION_CONFORMANCE_INTERMEDIATES_H_

#include "absl/status/status.h"
#include "attention/conformance/problems.h"
#include "attention/conformance/subject.h"

namespace attnlab::conformance {

// The check gives_its_scores of conformance.h. Large problems are checked on a part of their rows.
absl::Status GivesItsScores(const Subject& subject, const Case& c);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_INTERMEDIATES_H_
