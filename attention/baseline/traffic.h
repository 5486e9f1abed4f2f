// The baseline's model of its FLOPs and memory traffic.
#ifndef ATTENTION_BASELINE_TRAFFIC_H_
#define ATTENTION_BASELINE_TRAFFIC_H_

#include "attention/baseline/options.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"

namespace attnlab::baseline {

// Every step writes its outputs once and reads its inputs once: from memory, unless L2 still has
// what the step before wrote. S and P are nearly all of it. FLOPs are those of the products, which
// ignore the mask. Tensors are assumed to be BSHD.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const Options& options);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_TRAFFIC_H_
