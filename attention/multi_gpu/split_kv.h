// Keys divided among ranks, for decoding one very long context: each rank has all queries and a part of the
// keys. Each computes its part, one all-gather brings O and LSE of all parts to all ranks, and each merges
// them in the order of ranks, so that all get the same bits.
#ifndef ATTENTION_MULTI_GPU_SPLIT_KV_H_
#define ATTENTION_MULTI_GPU_SPLIT_KV_H_

#include <string>

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/communicator.h"

namespace attnlab::multi_gpu {

// `problem`: the whole. `mine`: all queries, q, o [b, sq, hq, d] and lse [b, sq, hq, 1], and the keys of
// ChunksOf(skv, ranks, rank, Order::kInOrder), k, v [b, keys, hkv, d]. `kernel`: "" for the default one.
// Errors as of RingForward(); lens = packed is Unimplemented.
absl::Status SplitKvForward(const AttentionProblem& problem, Communicator& c,
                            const AttentionTensors& mine, const std::string& kernel = "",
                            void* stream = nullptr);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_SPLIT_KV_H_
