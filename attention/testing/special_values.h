// Infinity and NaN in V, and scores of minus infinity.
//
// A matrix product multiplies rows of V that a query does not see by 0, and 0 times NaN is NaN; and
// a weight that rounds to 0 must not make NaN of infinity. Kernels on products take care of that in
// a path of their own, which the conformance suite, where all of V's row is NaN and K's too, takes
// with other values. A score of minus infinity looks like that of a key which is not seen, but is
// none.
#ifndef ATTENTION_TESTING_SPECIAL_VALUES_H_
#define ATTENTION_TESTING_SPECIAL_VALUES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/attention.h"
#include "attention/testing/layout.h"

namespace attnlab::testing {

// Both run the plan and compare O and LSE with the oracle's: infinity and NaN must be where it has
// them, and nowhere else, and numbers must be near its. The problem has lens = fixed. Internal,
// with the first element that is wrong.

// With single elements of V that are not finite, of the first KV head: in ten keys and seven
// columns at the beginning, and, where there are 30 keys and 30 columns, as many in the middle and
// at the end. The problem has at least 10 keys and 7 columns. InvalidArgument where it leaves
// nothing to see: it has to have rows that see an infinity, a NaN, and neither.
absl::Status SpecialValuesOfV(const Plan& plan, Layout layout);

// With scores of minus infinity (with a softcap, of minus that) at the first `keys` keys of each
// sequence, from infinities in K, and with NaN in one element of V that lies there. Rows that see
// no other keys are NaN, LSE included, for they have no softmax. `keys`: from 1 to skv.
absl::Status SpecialValuesOfK(const Plan& plan, Layout layout, int64_t keys);

}  // namespace attnlab::testing

#endif  // ATTENTION_TESTING_SPECIAL_VALUES_H_
