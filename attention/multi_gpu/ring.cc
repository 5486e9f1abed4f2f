#include "attention/multi_gpu/ring.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
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
#include "attention/multi_gpu/ring_problem.h"

namespace attnlab::multi_gpu {
namespace {

// K and V travel.
class Ring {
 public:
  Ring(const AttentionProblem& p, const RingOptions& options, Communicator& c,
       const AttentionTensors& mine, void* stream)
      : given_(p), options_(options), c_(c), mine_(mine), stream_(stream) {}

  absl::Status Run() {
    std::string text;
    absl::Status s = ring_.Make(given_, options_, c_, mine_, &text);
    if (s.ok()) s = Prepare();
    if (s = Agree(c_, "problem of a ring", text, s); !s.ok()) return s;

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
      s = NoteTime(options_, *executor_);
      if (s.ok()) s = Step(step, ViewsOf(here, ring_.KeysAt(owner)));
      s.Update(NoteTime(options_, *executor_));
      if (moves) {
        // In any case: what travels uses memory of this object.
        s.Update(c_.Wait(absl::StrCat("K and V for step ", step + 1, " of ", n)));
        std::swap(here, coming);
      }
      if (!s.ok()) return s;
    }
    if (s = executor_->Store(mine_.o, mine_.lse); !s.ok()) return s;
    return GiveTimes(options_, *executor_);
  }

 private:
  const AttentionProblem& P() const { return ring_.whole(); }
  // Whose K and V are here.
  int OwnerAt(int step) const { return (c_.rank() + c_.ranks() - step) % c_.ranks(); }

  // K and V lie one after the other in what travels, both aligned as kernels want them.
  int64_t BytesOfK(int64_t keys) const {
    return AlignedBytes(P().b * keys * P().hkv * P().d * SizeOf(P().dtype));
  }
  int64_t BytesOf(int rank) const {
    const int64_t keys = ring_.KeysAt(rank);
    return BytesOfK(keys) + P().b * keys * P().hkv * P().dv * SizeOf(P().dtype);
  }

  // Plans and allocates for all steps, so that none of them waits for that.
  absl::Status Prepare() {
    absl::StatusOr<std::unique_ptr<Executor>> executor = MakeExecutor(mine_.q.device, stream_);
    if (!executor.ok()) return executor.status();
    executor_ = *std::move(executor);
    int64_t rows = 0, kv = 0;  // of the largest part, and bytes
    for (int step = 0; step < c_.ranks(); ++step) {
      absl::StatusOr<std::vector<PlannedJob>> jobs =
          PlansOf(ring_.JobsOf(c_.rank(), OwnerAt(step)), mine_.q.device, options_.kernel,
                  &workspace_.bytes);
      if (!jobs.ok()) return jobs.status();
      for (const PlannedJob& job : *jobs) rows = std::max(rows, job.plan.problem.sq);
      kv = std::max(kv, BytesOf(OwnerAt(step)));
      jobs_.push_back(*std::move(jobs));
    }
    const int64_t heads = P().b * rows * P().hq;
    const std::pair<void**, int64_t> memory[] = {{&kv_[0], kv},
                                                 {&kv_[1], c_.ranks() > 1 ? kv : 0},
                                                 {&o_, heads * P().dv * SizeOf(P().ODType())},
                                                 {&lse_, heads * SizeOf(DType::kFloat32)},
                                                 {&workspace_.data, workspace_.bytes}};
    for (const auto& [data, bytes] : memory) {
      const absl::StatusOr<void*> allocated = executor_->Allocate(bytes);
      if (!allocated.ok()) return allocated.status();
      *data = *allocated;
    }
    return executor_->Reset(P().b, ring_.RowsAt(c_.rank()), P().hq, P().dv);
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
      const Device there = mine_.q.device;
      AttentionTensors t;
      t.q = SomeRows(mine_.q, job.row, p.sq);
      t.k = SomeRows(kv.k, job.key, p.skv), t.v = SomeRows(kv.v, job.key, p.skv);
      t.o = BshdView(o_, p.ODType(), there, p.b, p.sq, p.hq, p.dv);
      t.lse = LseView(static_cast<float*>(lse_), there, p.b, p.sq, p.hq);
      absl::Status s = Forward(job.plan, t, workspace_, stream_);
      // Before the merge, which does not read K and V.
      if (s.ok()) s = Record();
      if (s.ok()) s = executor_->Add(t.o, t.lse, job.row);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  const AttentionProblem given_;
  const RingOptions options_;
  Communicator& c_;
  const AttentionTensors mine_;
  void* const stream_;
  RingProblem ring_;
  std::vector<std::vector<PlannedJob>> jobs_;  // of each step
  std::unique_ptr<Executor> executor_;
  // Two of K and V, and a part's O and LSE.
  void *kv_[2] = {}, *o_ = nullptr, *lse_ = nullptr;
  Workspace workspace_;
  void* read_ = nullptr;  // an event: what has been enqueued so far has read K and V
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
