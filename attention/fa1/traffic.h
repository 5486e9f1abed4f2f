// FA1's model of its FLOPs and memory traffic.
#ifndef ATTENTION_FA1_TRAFFIC_H_
#define ATTENTION_FA1_TRAFFIC_H_

#include <cstdint>

#include "attention/core/device.h"
#include "attention/core/problem.h"

namespace attnlab::fa1 {

// Q is read and O written once. K and V are read once for each query tile that sees them, unless L2
// still has them from the tile before. FLOPs count the pairs that the mask lets through, not what
// tiles at its edges compute in vain. `tile_rows`: query rows per tile.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        int64_t tile_rows);

}  // namespace attnlab::fa1

#endif  // ATTENTION_FA1_TRAFFIC_H_
