// Infinity and NaN in V.
//
// A matrix product multiplies rows of V that a query does not see by 0, and 0 times NaN is NaN; and
// a weight that rounds to 0 must not make NaN of infinity. Kernels on products take care of that in
// a path of their own, which the conformance suite, where all of V's row is NaN and K's too, takes
// with other values.
#ifndef ATTENTION_TESTING_SPECIAL_VALUES_H_
#define ATTENTION_TESTING_SPECIAL_VALUES_H_

#include "absl/status/status.h"
#include "attention/attention.h"
#include "attention/testing/layout.h"

namespace attnlab::testing {

// Runs the plan with single elements of V that are not finite: infinity and NaN must be where the
// oracle has them, and nowhere else. The problem has at least 10 keys and 7 columns, and lens =
// fixed. Internal, with the first element that is wrong; InvalidArgument where the problem leaves
// nothing to see.
absl::Status SpecialValuesOfV(const Plan& plan, Layout layout);

}  // namespace attnlab::testing

#endif  // ATTENTION_TESTING_SPECIAL_VALUES_H_
