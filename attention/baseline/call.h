// One call of the baseline: its six steps on the tensors of a problem.
#ifndef ATTENTION_BASELINE_CALL_H_
#define ATTENTION_BASELINE_CALL_H_

#include "absl/status/status.h"
#include "attention/baseline/options.h"
#include "attention/kernel.h"
#include "attention/problem.h"
#include "attention/tensors.h"

namespace attnlab::baseline {

// Enqueues the steps on the launch's stream. Problem, tensors and workspace have been validated;
// the options are those of the launch's configuration.
absl::Status RunCall(const AttentionProblem& problem, const AttentionTensors& tensors,
                     const Launch& launch, const Options& options);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_CALL_H_
