// What kernels decline alike, for their Supports().
#ifndef ATTENTION_DEVICE_SUPPORTS_H_
#define ATTENTION_DEVICE_SUPPORTS_H_

#include "absl/status/status.h"
#include "attention/problem.h"

namespace attnlab::device {

// Of a kernel that computes on any Element (element.h), and on K and V whose tokens lie at one
// stride: Unimplemented for other dtypes and for paged K and V. The problem is valid.
absl::Status CheckDtypeAndPage(const AttentionProblem& problem);

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_SUPPORTS_H_
