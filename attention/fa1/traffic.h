// FA1's own model of what it does and moves.
#ifndef ATTENTION_FA1_TRAFFIC_H_
#define ATTENTION_FA1_TRAFFIC_H_

#include "attention/device/cuda_core_table.h"
#include "attention/machine.h"
#include "attention/problem.h"

namespace attnlab::fa1 {

// Q is read and O written once. K and V are read once by all query heads that share them, which run
// at the same time, and then again for every query tile that sees them, unless L2 still has what
// the tiles before have read (l2_reuse.h). Where that is about as much as L2 holds, a part of it is
// found there, and the model, which knows all or nothing, is wrong by up to the whole of it. FLOPs
// are those of pairs that the mask lets through: what tiles at its edges compute in vain does not
// count.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const device::CudaCoreTile& tile);

}  // namespace attnlab::fa1

#endif  // ATTENTION_FA1_TRAFFIC_H_
