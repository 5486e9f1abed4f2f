// The model of split_k's memory traffic.
#ifndef ATTENTION_SPLIT_K_TRAFFIC_H_
#define ATTENTION_SPLIT_K_TRAFFIC_H_

#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/split_k/options.h"

namespace attnlab::split_k {

// Q is read and O written once, and so is the page table read. K and V are read once for each query
// tile of a head, and the parts are written once and read again, unless L2 still has them. FLOPs
// count the pairs that the mask lets through.
Traffic ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                        const Options& options);

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_TRAFFIC_H_
