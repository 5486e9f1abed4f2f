// FA1's own model of what it does and moves.
#ifndef ATTENTION_FA1_TRAFFIC_H_
#define ATTENTION_FA1_TRAFFIC_H_

#include <cstdint>

#include "attention/core/device.h"
#include "attention/core/problem.h"

namespace attnlab::fa1 {

// Q is read and O written once. K and V are read once for each query tile that sees them, unless L2
// still has them from the tile before. FLOPs are those of pairs that the mask lets through: what
// tiles at its edges compute in vain does not count. `tile_rows`: query rows of a tile.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        int64_t tile_rows);

}  // namespace attnlab::fa1

#endif  // ATTENTION_FA1_TRAFFIC_H_
