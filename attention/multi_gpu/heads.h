// Heads divided among ranks. Query heads stay with their KV head. Nothing travels but the text of the problem.
#ifndef ATTENTION_MULTI_GPU_HEADS_H_
#define ATTENTION_MULTI_GPU_HEADS_H_

#include <string>

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/pieces.h"

namespace attnlab::multi_gpu {

// The KV heads of a rank. Numbers of heads differ by at most one, and may be 0.
Chunk KvHeadsOf(const AttentionProblem& problem, int ranks, int rank);

// `problem`: the whole. `mine`: tensors with this rank's heads alone; with none, they are not looked at. All
// ranks call it with the same problem and kernel ("": the default one). On a GPU it returns before the work on
// `stream`, a cudaStream_t, is done. Each head has the bits of one rank, if the kernel gives a head the same
// bits whatever other heads there are.
//
// InvalidArgument where ranks disagree on the problem. Errors of Communicator, MakePlan() and Forward().
absl::Status HeadsForward(const AttentionProblem& problem, const std::string& kernel,
                          Communicator& c, const AttentionTensors& mine, void* stream = nullptr);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_HEADS_H_
