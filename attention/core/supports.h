// Checks that several kernels' Prepare() share.
#ifndef ATTENTION_CORE_SUPPORTS_H_
#define ATTENTION_CORE_SUPPORTS_H_

#include "absl/status/status.h"
#include "attention/core/problem.h"

namespace attnlab {

// For kernels whose Q, K, V and O share one dtype, an Element (element.h), and whose K and V have a
// constant stride between tokens. Unimplemented for other dtypes, for K and V or O of another dtype
// than Q, and for paged K and V. The problem must be valid.
absl::Status CheckDtypeAndPage(const AttentionProblem& problem);

}  // namespace attnlab

#endif  // ATTENTION_CORE_SUPPORTS_H_
