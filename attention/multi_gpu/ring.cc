#include "attention/multi_gpu/ring.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/multi_gpu/part.h"
#include "attention/multi_gpu/pieces.h"
#include "attention/multi_gpu/ring_problem.h"

namespace attnlab::multi_gpu {
namespace {

// K and V travel.
class Ring : public RingCall {
 public:
  using RingCall::RingCall;

  absl::Status Run() {
    absl::Status s = Begin();
    if (!s.ok()) return s;
    const int n = c_.ranks();
    Kv here = own_;
    if (own_.k != mine_.k.data) s = executor_->Copy(mine_.k, KAt(here, c_.rank()));
    if (s.ok() && own_.v != mine_.v.data) s = executor_->Copy(mine_.v, VAt(here, c_.rank()));
    for (int step = 0; step < n && s.ok(); ++step) {
      const bool moves = step + 1 < n;
      const Kv coming = places_[step % 2];
      // Once the step before, which read `coming`, is computed.
      if (moves) s = StartTransfers(step, here, coming);
      // On a GPU this only enqueues: the step is computed while the next K and V come.
      if (s.ok()) s = NoteTime();
      if (s.ok()) s = Step(step, here);
      s.Update(NoteTime());
      // In any case: what travels uses memory of this object.
      if (moves) s.Update(c_.Wait(absl::StrCat("K and V for step ", step + 1, " of ", n)));
      here = coming;
    }
    if (s.ok() && !merged_) s = executor_->Store(mine_.o, mine_.lse);
    return s.ok() ? GiveTimes() : s;
  }

 private:
  struct Kv {
    void *k = nullptr, *v = nullptr;
  };

  std::vector<Job> JobsAt(int step) const override {
    return ring_.JobsOf(c_.rank(), OwnerAt(step));
  }

  TensorView KAt(const Kv& kv, int rank) const {
    return BshdView(kv.k, P().dtype, mine_.k.device, P().b, ring_.KeysAt(rank), P().hkv, P().d);
  }
  TensorView VAt(const Kv& kv, int rank) const {
    return BshdView(kv.v, P().dtype, mine_.v.device, P().b, ring_.KeysAt(rank), P().hkv, P().dv);
  }
  int64_t BytesOf(int rank, int64_t dim) const {
    return P().b * ring_.KeysAt(rank) * P().hkv * dim * SizeOf(P().dtype);
  }

  absl::Status Prepare() override {
    const int n = c_.ranks();
    int64_t rows = 0, k = 0, v = 0;  // of the largest part, and bytes
    for (int step = 0; step < n; ++step) {
      for (const PlannedJob& job : jobs_[step]) rows = std::max(rows, job.plan.problem.sq);
      parts_of_o_ += static_cast<int64_t>(jobs_[step].size());
      k = std::max(k, BytesOf(OwnerAt(step), P().d));
      v = std::max(v, BytesOf(OwnerAt(step), P().dv));
    }
    AttentionProblem p = P();
    p.sq = rows;
    Memory memory;
    // One part is being computed while the one before is still to be merged.
    for (void*& part : parts_) memory.push_back({&part, BytesOfPart(p)});
    for (int i = 0; i < std::min(2, n - 1); ++i) {
      memory.insert(memory.end(), {{&places_[i].k, k}, {&places_[i].v, v}});
    }
    // This rank's own K and V travel from where they are, if they are in one piece. Without keys they may be nowhere.
    const bool has_keys = ring_.KeysAt(c_.rank()) > 0;
    own_ = {const_cast<void*>(mine_.k.data), const_cast<void*>(mine_.v.data)};
    if (!has_keys || !IsDense(mine_.k)) memory.push_back({&own_.k, k});
    if (!has_keys || !IsDense(mine_.v)) memory.push_back({&own_.v, v});
    // What adds may start before the kernel ahead of it has ended, so it has a workspace of its own.
    adding_workspace_.bytes = workspace_.bytes;
    if (parts_of_o_ == 2) memory.push_back({&adding_workspace_.data, adding_workspace_.bytes});
    return Allocate(memory);
  }

  absl::Status StartTransfers(int step, const Kv& here, const Kv& coming) {
    const int n = c_.ranks(), next = (c_.rank() + 1) % n, previous = (c_.rank() + n - 1) % n;
    const Chunk leave = ring_.KeysNeeded(OwnerAt(step), next),
                come = ring_.KeysNeeded(OwnerAt(step + 1), c_.rank());
    const auto start = [&](void* from, void* to, int64_t dim) {
      const int64_t row = P().hkv * dim * SizeOf(P().dtype);
      return c_.Start({static_cast<char*>(from) + leave.begin * row, next,
                       static_cast<char*>(to) + come.begin * row, previous,
                       P().b * leave.size() * row, P().b * come.size() * row, stream_});
    };
    absl::Status s = start(here.k, coming.k, P().d);
    s.Update(start(here.v, coming.v, P().dv));
    return s;
  }

  absl::Status Step(int step, const Kv& kv) {
    const int owner = OwnerAt(step);
    for (const PlannedJob& job : jobs_[step]) {
      const AttentionProblem& p = job.plan.problem;
      std::swap(parts_[0], parts_[1]);
      AttentionTensors t = PartAt(parts_[0], p, mine_.q.device);
      const bool is_first = &job == jobs_[0].data();
      if (parts_of_o_ <= 2 && is_first) {
        // All parts are merged in one pass, and the first one may lie where O is (Executor::Store()).
        t.o = Mutable(SomeRows(mine_.o, job.row, p.sq));
        if (mine_.lse.data != nullptr) t.lse = Mutable(SomeRows(mine_.lse, job.row, p.sq));
      }
      t.q = SomeRows(mine_.q, job.row, p.sq);
      t.k = SomeRows(KAt(kv, owner), job.key, p.skv);
      t.v = SomeRows(VAt(kv, owner), job.key, p.skv);
      if (is_first) first_ = t;
      if (parts_of_o_ == 2 && !is_first && first_.o.shape[1] == mine_.o.shape[1]) {
        // The first of two parts is where O is, with all rows. Some kernels can add the second one there.
        AttentionTensors both = t;
        both.o = Mutable(SomeRows(first_.o, job.row, p.sq));
        both.lse = Mutable(SomeRows(first_.lse, job.row, p.sq));
        // Q was there before the first part; K and V have come, or `stream_` waits for them.
        const absl::Status added =
            ForwardAdding(job.plan, both, adding_workspace_, stream_, /*may_start_early=*/true);
        merged_ = added.ok();
        if (merged_) continue;
        if (!absl::IsUnimplemented(added)) return added;
      }
      absl::Status s = Forward(job.plan, t, workspace_, stream_);
      if (s.ok()) s = executor_->Add(t.o, t.lse, job.row);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  Kv own_, places_[2];  // this rank's, and what has come
  void* parts_[2] = {};
  Workspace adding_workspace_;
  AttentionTensors first_;  // the part of the first job
  bool merged_ = false;     // all parts are where O is
};

}  // namespace

absl::Status RingForward(const AttentionProblem& problem, const RingOptions& options,
                         Communicator& c, const AttentionTensors& mine, void* stream) {
  if (problem.Validate().ok() && QTravels(problem)) {
    return RingOfQ(problem, options, c, mine, stream);
  }
  return Ring(problem, options, c, mine, stream).Run();
}

}  // namespace attnlab::multi_gpu
