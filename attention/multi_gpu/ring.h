// Ring attention (Liu, Zaharia and Abbeel, 2023): each rank has some queries of every sequence, and as many
// keys. K and V travel from rank to rank, so that in n steps the queries of each rank meet all keys:
//
//           step 0         step 1         step 2        (3 ranks; Q stays, K and V move on)
//   rank 0  Q0 with KV 0   Q0 with KV 2   Q0 with KV 1
//   rank 1  Q1 with KV 1   Q1 with KV 0   Q1 with KV 2
//   rank 2  Q2 with KV 2   Q2 with KV 1   Q2 with KV 0
//
// K and V of the next step travel while this one is computed. Where Q, O and LSE are less, Q travels instead, and
// parts of O come back. Each step is a problem for the default kernel;
// its O and LSE are merged with those of the steps before (device/online_softmax.h), in fp32, or added by the kernel
// if it can.
#ifndef ATTENTION_MULTI_GPU_RING_H_
#define ATTENTION_MULTI_GPU_RING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/pieces.h"

namespace attnlab::multi_gpu {

// A step of a rank.
struct StepTime {
  double computing = 0;  // seconds
  double waiting = 0;    // from the end of the step before
};

struct RingOptions {
  Order order = Order::kInOrder;
  std::string kernel;  // "": the default one
  // If not null, gets an entry per step, and the call returns when its work is done.
  std::vector<StepTime>* times = nullptr;
};

// `problem`: the whole. `mine`: this rank's queries and keys: those of ChunksOf(sq, …) and ChunksOf(skv, …),
// one chunk after the other, as q, o [b, rows, hq, d], k, v [b, rows, hkv, d] and, unless its data is null,
// lse [b, rows, hq, 1]. All ranks call it with the same problem and options. The result is that of one rank to
// rounding, and the same from run to run.
//
// lens = packed: the tokens of all sequences are divided, so a sequence may lie on several ranks. All ranks have
// the offsets of the whole, in cu_seqlens_q and cu_seqlens_kv, in host memory also where tensors are on a GPU;
// tensors are [1, rows, heads, d].
//
// Tensors are in host memory, or all on c.device(). On a GPU the call waits for other ranks' calls, but like Forward()
// it returns before the work on `stream`, a cudaStream_t, is done. Its memory comes and goes in the order of that
// stream. Other GPUs read K and V where they are; after an error keep both until all communicators are destroyed.
//
// InvalidArgument for an invalid problem or tensors, and where ranks disagree on the problem. Unimplemented
// for lens = padded, pages and fp8. Errors of Communicator and of MakePlan().
absl::Status RingForward(const AttentionProblem& problem, const RingOptions& options,
                         Communicator& c, const AttentionTensors& mine, void* stream = nullptr);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_RING_H_
