// Writes K and V of new tokens into the pages of a cache, for a whole batch in one launch.
//
//   NewTokens added;
//   added.k = …; added.v = …;                      // of the tokens that t.q has
//   absl::Status s = Append(problem, t, added, stream);
//   s = Forward(plan, t, workspace, stream);       // sees them
//
// The problem and the tensors are those of the attention that follows: the rows of Q are the new
// tokens, and they are the last of the kv_len tokens that a sequence has with them. Token j of a
// sequence's q_len becomes its token kv_len - q_len + j.
#ifndef PAGED_APPEND_H_
#define PAGED_APPEND_H_

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/rotary.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"

namespace attnlab::paged {

struct NewTokens {
  // lens = fixed, padded: [b, sq, hkv, d] and [b, sq, hkv, dv]; packed: [1, tokens_q, …]. Of Q's
  // dtype. Rows that no sequence has may be read, but have no influence.
  ConstTensorView k, v;
  // With a rotary table, K is rotated on its way into the cache. If `q` is given, so is Q: it is
  // read there and written to t.q, which may be the same memory.
  Rotary rotary;
  ConstTensorView q;
};

// Writes into the pages of t.k and t.v, and rotated queries into t.q: their memory must be writable.
// Pages in fp8 get value * (1 / scale), computed in fp32, rounded to nearest, at most 448 in size. A
// page that two sequences share must not be among those that are written.
//
// On the CPU, the work is done on return. On a GPU, it is asynchronous on the stream (cudaStream_t),
// allocates nothing, and can be captured in a graph; lengths and table are read when it runs, and
// tokens whose page the table or the pool does not have are left out.
//
// InvalidArgument if the problem is not paged, or a tensor does not fit it, with the tensor's name,
// the value and the limit.
absl::Status Append(const AttentionProblem& problem, const AttentionTensors& t,
                    const NewTokens& added, void* stream = nullptr);

}  // namespace attnlab::paged

#endif  // PAGED_APPEND_H_
