// The baseline's own model of what it does and moves.
#ifndef ATTENTION_BASELINE_TRAFFIC_H_
#define ATTENTION_BASELINE_TRAFFIC_H_

#include "attention/baseline/options.h"
#include "attention/machine.h"
#include "attention/problem.h"

namespace attnlab::baseline {

// Every step reads its inputs once and writes its outputs once, and nothing stays in L2 between two
// steps. So it holds for scores that L2 does not hold, and counts too much for smaller ones. FLOPs
// are those of the products, which know no mask. Tensors are taken to lie as BSHD.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const Options& options);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_TRAFFIC_H_
