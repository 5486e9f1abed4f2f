#include "attention/multi_gpu/ring.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/part.h"
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
    const int n = c_.ranks(), next = (c_.rank() + 1) % n, previous = (c_.rank() + n - 1) % n;
    void *here = kv_[0], *coming = kv_[1];
    if (s = Pack(here); !s.ok()) return s;
    for (int step = 0; step < n; ++step) {
      const int owner = OwnerAt(step);
      const bool moves = step + 1 < n;
      if (moves) {
        // It may begin once the step before, which read `coming`, is computed.
        const int64_t bytes = BytesOf(owner), others = BytesOf(OwnerAt(step + 1));
        const Transfer t = {here, next, coming, previous, bytes, others, read_};
        if (s = c_.Start(t); !s.ok()) return s;
      }
      // On a GPU this only enqueues: the step is computed while the host waits for the next K and V.
      s = NoteTime();
      if (s.ok()) s = Step(step, ViewsOf(here, ring_.KeysAt(owner)));
      s.Update(NoteTime());
      if (moves) {
        // In any case: what travels uses memory of this object.
        s.Update(c_.Wait(absl::StrCat("K and V for step ", step + 1, " of ", n)));
        std::swap(here, coming);
      }
      if (!s.ok()) return s;
    }
    if (s = executor_->Store(mine_.o, mine_.lse); !s.ok()) return s;
    return GiveTimes();
  }

 private:
  std::vector<Job> JobsAt(int step) const override {
    return ring_.JobsOf(c_.rank(), OwnerAt(step));
  }

  // K and V lie one after the other in what travels, both aligned as kernels want them.
  int64_t BytesOfK(int64_t keys) const {
    return AlignedBytes(P().b * keys * P().hkv * P().d * SizeOf(P().dtype));
  }
  int64_t BytesOf(int rank) const {
    const int64_t keys = ring_.KeysAt(rank);
    return BytesOfK(keys) + P().b * keys * P().hkv * P().dv * SizeOf(P().dtype);
  }

  absl::Status Prepare() override {
    int64_t rows = 0, kv = 0;  // of the largest part, and bytes
    for (int step = 0; step < c_.ranks(); ++step) {
      for (const PlannedJob& job : jobs_[step]) rows = std::max(rows, job.plan.problem.sq);
      kv = std::max(kv, BytesOf(OwnerAt(step)));
    }
    AttentionProblem p = P();
    p.sq = rows;
    return Allocate({{&kv_[0], kv}, {&kv_[1], c_.ranks() > 1 ? kv : 0}, {&part_, BytesOfPart(p)}});
  }

  struct Pair {
    TensorView k, v;
  };
  Pair ViewsOf(void* kv, int64_t keys) const {
    void* const v = static_cast<char*>(kv) + BytesOfK(keys);
    const Device there = mine_.q.device;
    return {BshdView(kv, P().dtype, there, P().b, keys, P().hkv, P().d),
            BshdView(v, P().dtype, there, P().b, keys, P().hkv, P().dv)};
  }
  absl::Status Pack(void* kv) {
    const Pair to = ViewsOf(kv, ring_.KeysAt(c_.rank()));
    absl::Status s = executor_->Copy(mine_.k, to.k);
    if (s.ok()) s = executor_->Copy(mine_.v, to.v);
    return s.ok() ? Record() : s;
  }
  absl::Status Record() {
    const absl::StatusOr<void*> event = executor_->Record();
    if (event.ok()) read_ = *event;
    return event.status();
  }

  absl::Status Step(int step, const Pair& kv) {
    for (const PlannedJob& job : jobs_[step]) {
      const AttentionProblem& p = job.plan.problem;
      AttentionTensors t = PartAt(part_, p, mine_.q.device);
      t.q = SomeRows(mine_.q, job.row, p.sq);
      t.k = SomeRows(kv.k, job.key, p.skv), t.v = SomeRows(kv.v, job.key, p.skv);
      absl::Status s = Forward(job.plan, t, workspace_, stream_);
      // Before the merge, which does not read K and V.
      if (s.ok()) s = Record();
      if (s.ok()) s = executor_->Add(t.o, t.lse, job.row);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  void *kv_[2] = {}, *part_ = nullptr;  // two of K and V, and a part of O
  void* read_ = nullptr;                // an event: what has been enqueued so far has read K and V
};

// Per token of a sequence. Q comes back as O and LSE.
bool QIsLess(const AttentionProblem& p) {
  const double q = p.d * SizeOf(p.dtype) + p.dv * SizeOf(p.ODType()) + SizeOf(DType::kFloat32),
               kv = (p.d + p.dv) * SizeOf(p.dtype);
  return static_cast<double>(p.sq * p.hq) * q < static_cast<double>(p.skv * p.hkv) * kv;
}

}  // namespace

absl::Status RingForward(const AttentionProblem& problem, const RingOptions& options,
                         Communicator& c, const AttentionTensors& mine, void* stream) {
  if (problem.Validate().ok() && QIsLess(problem)) {
    return RingOfQ(problem, options, c, mine, stream);
  }
  return Ring(problem, options, c, mine, stream).Run();
}

}  // namespace attnlab::multi_gpu
