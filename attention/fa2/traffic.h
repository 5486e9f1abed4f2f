// FA2's own model of what it does and moves.
#ifndef ATTENTION_FA2_TRAFFIC_H_
#define ATTENTION_FA2_TRAFFIC_H_

#include "attention/fa2/options.h"
#include "attention/machine.h"
#include "attention/problem.h"

namespace attnlab::fa2 {

// Q is read and O written once. Of the heads that are under way at a time (grid.h) K and V stay in
// the L2 cache, and are read once; of a head whose K and V are too large for it they are read anew
// by each round of query tiles that runs at the same time, for these walk the keys side by side.
// FLOPs are those of pairs that the mask lets through: what tiles at its edges compute in vain does
// not count.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const Options& options);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TRAFFIC_H_
