// A problem as the ranks of a ring see it: which rows each has, and what they give together.
#ifndef ATTENTION_MULTI_GPU_RING_PROBLEM_H_
#define ATTENTION_MULTI_GPU_RING_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "attention/attention.h"
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
  // Which keys of `owner`, among those that it has, `rank` sees or one of those that get them after it.
  Chunk KeysNeeded(int owner, int rank) const;

 private:
  std::vector<Chunk> Chunks(int64_t length, int rank) const {
    return ChunksOf(length, ranks_, rank, order_);
  }

  AttentionProblem p_;
  int ranks_ = 1;
  Order order_ = Order::kInOrder;
  std::vector<Sequence> sequences_;
};

// A rank's call of a ring, whatever travels.
class RingCall {
 public:
  RingCall(const AttentionProblem& problem, const RingOptions& options, Communicator& c,
           const AttentionTensors& mine, void* stream)
      : given_(problem), options_(options), c_(c), mine_(mine), stream_(stream) {}
  virtual ~RingCall() = default;

 protected:
  // Checks, prepares, and agrees with the other ranks.
  absl::Status Begin();
  // After the plans are made: allocates, so that no step waits for that, and counts parts_of_o_.
  virtual absl::Status Prepare() = 0;
  // What a step computes.
  virtual std::vector<Job> JobsAt(int step) const = 0;

  using Memory = std::vector<std::pair<void**, int64_t>>;  // where to put addresses, and bytes
  absl::Status Allocate(const Memory& memory);

  // If options.times is not null, the executor notes when a step begins and ends, and GiveTimes() makes entries
  // of it.
  absl::Status NoteTime() {
    return options_.times == nullptr ? absl::OkStatus() : executor_->NoteTime();
  }
  absl::Status GiveTimes();

  const AttentionProblem& P() const { return ring_.whole(); }
  // Whose tensors have come here.
  int OwnerAt(int step) const { return (c_.rank() + 2 * c_.ranks() - step) % c_.ranks(); }

  const AttentionProblem given_;
  const RingOptions options_;
  Communicator& c_;
  const AttentionTensors mine_;
  void* const stream_;
  RingProblem ring_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::vector<PlannedJob>> jobs_;  // of each step
  Workspace workspace_;
  int64_t parts_of_o_ = 0;  // that this rank's queries get

 private:
  absl::Status PlanSteps();
};

// Where Q is less than K and V: Q travels, and parts of O come back (ring_of_q.cc).
absl::Status RingOfQ(const AttentionProblem& problem, const RingOptions& options, Communicator& c,
                     const AttentionTensors& mine, void* stream);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_RING_PROBLEM_H_
