// One call of the baseline: its six steps on a problem's tensors.
#ifndef ATTENTION_BASELINE_CALL_H_
#define ATTENTION_BASELINE_CALL_H_

#include "absl/status/status.h"
#include "attention/baseline/options.h"
#include "attention/core/kernel.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"

namespace attnlab::baseline {

// Enqueues the steps on the launch's stream, on CUDA device `ordinal`. Problem, tensors and
// workspace must have been validated; options and layout must be those of the problem.
absl::Status RunCall(const AttentionProblem& problem, const AttentionTensors& tensors,
                     const Launch& launch, int ordinal, const Options& options,
                     const Layout& layout);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_CALL_H_
