// A problem as the ranks of a ring see it: which rows each has, and what they give together.
#ifndef ATTENTION_MULTI_GPU_RING_PROBLEM_H_
#define ATTENTION_MULTI_GPU_RING_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/executor.h"
#include "attention/multi_gpu/part.h"
#include "attention/multi_gpu/pieces.h"
#include "attention/multi_gpu/ring.h"

namespace attnlab::multi_gpu {

// Some queries of one rank, from row `row` of its tensors on, with some keys of another, from `key` on.
struct Job {
  AttentionProblem problem;
  int64_t row, key;
};
struct PlannedJob {
  Plan plan;
  int64_t row, key;
};

class RingProblem {
 public:
  // Also checks this rank's tensors. `text` gets what all ranks have to agree on.
  absl::Status Make(const AttentionProblem& problem, const RingOptions& options,
                    const Communicator& c, const AttentionTensors& mine, std::string* text);

  // Of all tokens, if lengths are packed. b, heads and dims are those of each job.
  const AttentionProblem& whole() const { return p_; }
  int64_t RowsAt(int rank) const { return RowsOf(Chunks(p_.sq, rank)); }
  int64_t KeysAt(int rank) const { return RowsOf(Chunks(p_.skv, rank)); }
  std::vector<Job> JobsOf(int rank_of_q, int rank_of_kv) const;

 private:
  std::vector<Chunk> Chunks(int64_t length, int rank) const {
    return ChunksOf(length, ranks_, rank, order_);
  }

  AttentionProblem p_;
  int ranks_ = 1;
  Order order_ = Order::kInOrder;
  std::vector<Sequence> sequences_;
};

// Plans. Raises `workspace_bytes` to what the plans need.
absl::StatusOr<std::vector<PlannedJob>> PlansOf(const std::vector<Job>& jobs, Device device,
                                                const std::string& kernel,
                                                int64_t* workspace_bytes);

// If options.times is not null, the executor notes when a step begins and ends, and GiveTimes() makes entries of it.
absl::Status NoteTime(const RingOptions& options, Executor& executor);
absl::Status GiveTimes(const RingOptions& options, Executor& executor);

// Where Q is less than K and V: Q travels, and parts of O come back (ring_of_q.cc).
absl::Status RingOfQ(const AttentionProblem& problem, const RingOptions& options, Communicator& c,
                     const AttentionTensors& mine, void* stream);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_RING_PROBLEM_H_
