// Sequences divided among ranks outside attention, heads inside it (DeepSpeed-Ulysses, Jacobs et al., 2023):
//
//           has            all-to-all   computes        all-to-all   has
//   rank 0  rows 0 of all     <->       all rows of        <->       rows 0 of all
//   rank 1  rows 1 of all               heads 0, or 1                rows 1 of all
//
// Each rank sends (n - 1) / n of its rows of Q, K, V, O and LSE; in a ring, it sends (n - 1) / n of all rows of K
// and V. Query heads stay with their KV head, so ranks beyond the number of KV heads have nothing to compute.
#ifndef ATTENTION_MULTI_GPU_ALL_TO_ALL_H_
#define ATTENTION_MULTI_GPU_ALL_TO_ALL_H_

#include <string>

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/pieces.h"

namespace attnlab::multi_gpu {

struct AllToAllOptions {
  Order order = Order::kInOrder;  // of rows; the work does not depend on it
  std::string kernel;             // "": the default one
};

// As RingForward(), with the same tensors and errors, but lens = packed is Unimplemented. The result has the bits of
// one rank, if the kernel gives a head the same bits whatever other heads there are.
absl::Status AllToAllForward(const AttentionProblem& problem, const AllToAllOptions& options,
                             Communicator& c, const AttentionTensors& mine, void* stream = nullptr);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_ALL_TO_ALL_H_
