// FA2's model of its FLOPs and memory traffic.
#ifndef ATTENTION_FA2_TRAFFIC_H_
#define ATTENTION_FA2_TRAFFIC_H_

#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/fa2/options.h"

namespace attnlab::fa2 {

// Q is read and O written once. A round is the query tiles of a group of heads that run at the same
// time. Their blocks walk K and V side by side, so a round reads K and V once, unless L2 still has
// them from the round before. After all groups, each row of tiles is such a round of all heads.
// FLOPs count the pairs that the mask lets through, not what tiles at its edges compute in vain.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const Options& options);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TRAFFIC_H_
