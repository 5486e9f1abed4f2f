// FA2's own model of what it does and moves.
#ifndef ATTENTION_FA2_TRAFFIC_H_
#define ATTENTION_FA2_TRAFFIC_H_

#include "attention/fa2/options.h"
#include "attention/machine.h"
#include "attention/problem.h"

namespace attnlab::fa2 {

// Q is read and O written once. K and V of the heads that are a group (grid.h) are read once where
// what a round sees of them, the query tiles that run at the same time, fits the L2 cache; under a
// causal mask that is all. Otherwise each round reads it anew, for its tiles walk the keys side by
// side. Tiles that come after all groups read what they see once more, but for what L2 still has of
// the last group's. FLOPs are those of pairs that the mask lets through: what tiles at its edges
// compute in vain does not count.
//
// There is an interval where K and V of a group are about as much as L2 holds (l2_reuse.h); and
// where a single head has at least half as many tiles as run at a time. Then the end of one head
// and the beginning of the next are under way together, and where the K and V of both may not fit,
// nothing keeps blocks in step: from that they are to that each tile reads for itself what it sees,
// a hundred times as much for a long head.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const Options& options);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TRAFFIC_H_
