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
    absl::Status s = CheckPart("split KV", p_, p_.sq, KeysOf(c_.rank()).size(), mine_,
                               {/*packed=*/false, /*gpu=*/true});
    if (s.ok()) s = CheckDevice(mine_.q.device, c_);
    if (s.ok()) s = Prepare();
    s = Agree(c_, "problem of split KV", absl::StrCat(p_.ToString(), ",kernel=", kernel_), s);
    if (s.ok() && plan_.has_value()) s = Compute();
    if (s.ok()) s = Gather();
    for (int rank = 0; rank < c_.ranks() && s.ok(); ++rank) {
      const AttentionTensors part = PartOf(rank);
      if (part.o.shape[1] > 0) s = executor_->Add(part.o, part.lse, 0);
    }
    return s.ok() ? executor_->Store(mine_.o, mine_.lse) : s;
  }

 private:
  Chunk KeysOf(int rank) const { return ChunksOf(p_.skv, c_.ranks(), rank, Order::kInOrder)[0]; }
  // Queries behind its rows see none of the rank's keys.
  Piece PieceAt(int rank) const {
    const Piece piece = PieceOf(p_.mask, p_.sq, p_.skv, {0, p_.sq}, KeysOf(rank));
    return piece.keys > 0 ? piece : Piece{};
  }

  // A part as it travels: LSE, then O.
  int64_t BytesOfLse(int rank) const {
    return AlignedBytes(p_.b * PieceAt(rank).rows * p_.hq * SizeOf(DType::kFloat32));
  }
  int64_t BytesOf(int rank) const {
    return BytesOfLse(rank) + p_.b * PieceAt(rank).rows * p_.hq * p_.dv * SizeOf(p_.ODType());
  }
  // O and LSE.
  AttentionTensors PartOf(int rank) const {
    const int64_t rows = PieceAt(rank).rows;
    const Device there = mine_.q.device;
    AttentionTensors t;
    t.lse = LseView(static_cast<float*>(parts_[rank]), there, p_.b, rows, p_.hq);
    t.o = BshdView(static_cast<void*>(static_cast<char*>(parts_[rank]) + BytesOfLse(rank)),
                   p_.ODType(), there, p_.b, rows, p_.hq, p_.dv);
    return t;
  }

  absl::Status Prepare() {
    absl::StatusOr<std::unique_ptr<Executor>> executor = MakeExecutor(mine_.q.device, stream_);
    if (!executor.ok()) return executor.status();
    executor_ = *std::move(executor);
    for (int rank = 0; rank < c_.ranks(); ++rank) {
      const absl::StatusOr<void*> memory = executor_->Allocate(BytesOf(rank));
      if (!memory.ok()) return memory.status();
      parts_.push_back(*memory);
    }
    const Piece piece = PieceAt(c_.rank());
    if (piece.rows > 0) {
      AttentionProblem p = p_;
      p.sq = piece.rows, p.skv = piece.keys, p.mask = piece.mask;
      absl::StatusOr<Plan> plan = MakePlan(p, mine_.q.device, kernel_);
      if (!plan.ok()) return plan.status();
      plan_ = *std::move(plan);
      const absl::StatusOr<void*> memory = executor_->Allocate(plan_->workspace_bytes);
      if (!memory.ok()) return memory.status();
      workspace_ = {*memory, plan_->workspace_bytes};
    }
    return executor_->Reset(p_.b, p_.sq, p_.hq, p_.dv);
  }

  absl::Status Compute() {
    const AttentionProblem& p = plan_->problem;
    AttentionTensors t = PartOf(c_.rank());
    t.q = SomeRows(mine_.q, 0, p.sq);
    t.k = SomeRows(mine_.k, 0, p.skv), t.v = SomeRows(mine_.v, 0, p.skv);
    return Forward(*plan_, t, workspace_, stream_);
  }

  // Each part to all ranks.
  absl::Status Gather() {
    const absl::StatusOr<void*> computed = executor_->Record();
    if (!computed.ok()) return computed.status();
    const int n = c_.ranks(), rank = c_.rank();
    for (int i = 1; i < n; ++i) {
      const int to = (rank + i) % n, from = (rank + n - i) % n;
      absl::Status s =
          c_.Start({parts_[rank], to, parts_[from], from, BytesOf(rank), BytesOf(from), *computed});
      if (!s.ok()) return s;
    }
    return c_.Wait("parts of O");
  }

  const AttentionProblem p_;
  Communicator& c_;
  const AttentionTensors mine_;
  const std::string kernel_;
  void* const stream_;
  std::unique_ptr<Executor> executor_;
  std::vector<void*> parts_;  // of each rank
  std::optional<Plan> plan_;  // none if this rank's keys are not seen
  Workspace workspace_;
};

}  // namespace

absl::Status SplitKvForward(const AttentionProblem& problem, Communicator& c,
                            const AttentionTensors& mine, const std::string& kernel, void* stream) {
  return SplitKv(problem, c, mine, kernel, stream).Run();
}

}  // namespace attnlab::multi_gpu
