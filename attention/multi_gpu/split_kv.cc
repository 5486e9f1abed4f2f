#include "attention/multi_gpu/split_kv.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/executor.h"
#include "attention/multi_gpu/part.h"
#include "attention/multi_gpu/pieces.h"

namespace attnlab::multi_gpu {
namespace {

class SplitKv {
 public:
  SplitKv(const AttentionProblem& p, Communicator& c, const AttentionTensors& mine,
          const std::string& kernel, void* stream)
      : p_(p), c_(c), mine_(mine), kernel_(kernel), stream_(stream) {}

  absl::Status Run() {
    absl::Status s = CheckPart("split KV", p_, p_.sq, KeysOf(c_.rank()).size(), mine_);
    if (s.ok()) s = CheckDevice(mine_.q.device, c_);
    if (s.ok()) s = Prepare();
    s = Agree(c_, "problem of split KV", absl::StrCat(p_.ToString(), ",kernel=", kernel_), s);
    if (s.ok() && call_.has_value()) s = Compute();
    if (s.ok()) s = Gather();
    for (int rank = 0; rank < c_.ranks() && s.ok(); ++rank) {
      const AttentionTensors part = PartOf(rank);
      if (part.o.shape[1] > 0) s = executor_->Add(part.o, part.lse, 0);
    }
    return s.ok() ? executor_->Store(mine_.o, mine_.lse) : s;
  }

 private:
  Chunk KeysOf(int rank) const { return ChunksOf(p_.skv, c_.ranks(), rank, Order::kInOrder)[0]; }
  Piece PieceAt(int rank) const {
    return PieceOf(p_.mask, p_.sq, p_.skv, {0, p_.sq}, KeysOf(rank));
  }
  // A rank's part. Queries behind its rows see none of the rank's keys.
  AttentionProblem ProblemAt(int rank) const {
    const Piece piece = PieceAt(rank);
    AttentionProblem p = p_;
    p.sq = piece.keys > 0 ? piece.rows : 0, p.skv = piece.keys, p.mask = piece.mask;
    return p;
  }

  AttentionTensors PartOf(int rank) const {
    return PartAt(parts_[rank], problems_[rank], mine_.q.device);
  }

  absl::Status Prepare() {
    absl::StatusOr<std::unique_ptr<Executor>> executor = MakeExecutor(mine_.q.device, stream_);
    if (!executor.ok()) return executor.status();
    executor_ = *std::move(executor);
    int64_t parts = 0;
    for (int rank = 0; rank < c_.ranks(); ++rank) {
      problems_.push_back(ProblemAt(rank));
      if (problems_[rank].sq > 0) ++parts;
      const absl::StatusOr<void*> memory = executor_->Allocate(BytesOfPart(problems_[rank]));
      if (!memory.ok()) return memory.status();
      parts_.push_back(*memory);
    }
    if (problems_[c_.rank()].sq > 0) {
      absl::StatusOr<Call> call =
          PlanCall(problems_[c_.rank()], mine_.q.device, kernel_, *executor_);
      if (!call.ok()) return call.status();
      call_ = *std::move(call);
    }
    return executor_->Reset(p_.b, p_.sq, p_.hq, p_.dv, parts);
  }

  absl::Status Compute() {
    const AttentionProblem& p = call_->plan.problem;
    AttentionTensors t = PartOf(c_.rank());
    t.q = SomeRows(mine_.q, 0, p.sq);
    const int64_t first_key = PieceAt(c_.rank()).first_key;
    t.k = SomeRows(mine_.k, first_key, p.skv), t.v = SomeRows(mine_.v, first_key, p.skv);
    return Forward(call_->plan, t, call_->workspace, stream_);
  }

  // Each part to all ranks.
  absl::Status Gather() {
    const int n = c_.ranks(), rank = c_.rank();
    absl::Status s;
    for (int i = 1; i < n && s.ok(); ++i) {
      const int to = (rank + i) % n, from = (rank + n - i) % n;
      s = c_.Start({parts_[rank], to, parts_[from], from, BytesOfPart(problems_[rank]),
                    BytesOfPart(problems_[from]), stream_});
    }
    // In any case: what travels uses memory of this object.
    s.Update(c_.Wait("parts of O"));
    return s;
  }

  const AttentionProblem p_;
  Communicator& c_;
  const AttentionTensors mine_;
  const std::string kernel_;
  void* const stream_;
  std::unique_ptr<Executor> executor_;
  std::vector<AttentionProblem> problems_;  // of each rank
  std::vector<void*> parts_;
  std::optional<Call> call_;  // none if this rank's keys are not seen
};

}  // namespace

absl::Status SplitKvForward(const AttentionProblem& problem, Communicator& c,
                            const AttentionTensors& mine, const std::string& kernel, void* stream) {
  return SplitKv(problem, c, mine, kernel, stream).Run();
}

}  // namespace attnlab::multi_gpu
