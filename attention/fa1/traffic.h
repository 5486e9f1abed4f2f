// FA1's own model of what it does and moves.
#ifndef ATTENTION_FA1_TRAFFIC_H_
#define ATTENTION_FA1_TRAFFIC_H_

#include "attention/device/cuda_core_table.h"
#include "attention/machine.h"
#include "attention/problem.h"

namespace attnlab::fa1 {

// Q is read and O written once. K and V are read once by all query heads that share them, which run
// at the same time, and then again for every query tile that sees them, unless L2 still has what
// the tiles before have read (l2_reuse.h). FLOPs are those of pairs that the mask lets through:
// what tiles at its edges compute in vain does not count.
//
// There is an interval where that is about as much as L2 holds; and where the query heads of a KV
// head are several blocks that read K and V again, for nothing keeps those in step over long rows:
// from that they read together to that each reads for itself. They begin together, so the first
// tile's are read once.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const device::CudaCoreTile& tile);

}  // namespace attnlab::fa1

#endif  // ATTENTION_FA1_TRAFFIC_H_
