// What kernels decline alike, for their Prepare().
#ifndef ATTENTION_CORE_SUPPORTS_H_
#define ATTENTION_CORE_SUPPORTS_H_

#include "absl/status/status.h"
#include "attention/core/problem.h"

namespace attnlab {

// Of a kernel that computes on Q, K, V and O of one dtype which is an Element (element.h), and on K
// and V whose tokens lie at one stride: Unimplemented for other dtypes, for one of K and V or of O
// that is not Q's, and for paged K and V. The problem is valid.
absl::Status CheckDtypeAndPage(const AttentionProblem& problem);

}  // namespace attnlab

#endif  // ATTENTION_CORE_SUPPORTS_H_
