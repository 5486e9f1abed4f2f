// How long a call will take, from timing a part of the problem.
#ifndef ATTENTION_BENCH_ESTIMATE_H_
#define ATTENTION_BENCH_ESTIMATE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"

namespace attnlab::bench {

// Roughly the seconds of one call on the plan's problem, in about 0.2 s of its own wherever the call
// takes longer than that: a part of the problem is timed, made larger until a call is long beside a
// launch, and the rest is taken to go as fast. Errors: those of making inputs, and of the kernel.
absl::StatusOr<double> EstimateSeconds(const Plan& plan);

// The same for a problem whose parts `time` times.
absl::StatusOr<double> EstimateSeconds(
    const AttentionProblem& problem,
    absl::FunctionRef<absl::StatusOr<double>(const AttentionProblem& part)> time);

}  // namespace attnlab::bench

#endif  // ATTENTION_BENCH_ESTIMATE_H_
