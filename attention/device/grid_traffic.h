// The FLOPs and memory traffic of a kernel whose blocks run in the order of tile_order.h.
#ifndef ATTENTION_DEVICE_GRID_TRAFFIC_H_
#define ATTENTION_DEVICE_GRID_TRAFFIC_H_

#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/device/tile_order.h"

namespace attnlab::device {

// Q is read and O written once. A round is the query tiles of a group of heads that run at the same
// time. Their blocks walk K and V side by side, so a round reads K and V once, unless L2 still has
// them from the round before. After all groups, each row of tiles is such a round of all heads.
// FLOPs count the pairs that the mask lets through, not what tiles at its edges compute in vain.
//
// `rows`: of a query tile.
Traffic GridTraffic(const AttentionProblem& problem, const DeviceInfo& device, const Grid& grid,
                    int rows, int blocks_a_multiprocessor);

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_GRID_TRAFFIC_H_
