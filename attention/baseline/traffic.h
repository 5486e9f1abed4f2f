// The baseline's own model of what it does and moves.
#ifndef ATTENTION_BASELINE_TRAFFIC_H_
#define ATTENTION_BASELINE_TRAFFIC_H_

#include "attention/baseline/options.h"
#include "attention/machine.h"
#include "attention/problem.h"

namespace attnlab::baseline {

// Every step reads its inputs once and writes its outputs once, all from their beginnings to their
// ends; what L2 still has is not read from memory (l2_reuse.h), and where that is about as much as
// L2 holds, there is an interval. FLOPs are those of the products, which know no mask. Tensors are
// taken to lie as BSHD, and all heads to be worked on at a time: passes of some of them (heads=),
// which use the same memory again, find more in L2.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const Options& options);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_TRAFFIC_H_
