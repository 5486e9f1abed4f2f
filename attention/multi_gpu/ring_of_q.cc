// A ring in which Q travels, where that is less than K and V. What a rank computes for another one's queries goes back
// to it, while the next step is computed:
//
//           step 0         step 1         step 2          (3 ranks; K and V stay)
//   rank 0  Q0 with KV 0   Q2 with KV 0   Q1 with KV 0
//                                         part to rank 2  part to rank 1
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/ring_problem.h"

namespace attnlab::multi_gpu {
namespace {

class QRing : public RingCall {
 public:
  using RingCall::RingCall;

  absl::Status Run() {
    absl::Status s = Begin();
    if (!s.ok()) return s;
    const int n = c_.ranks(), next = (c_.rank() + 1) % n, previous = (c_.rank() + n - 1) % n;
    void *here = q_[0], *coming = q_[1];
    if (s = executor_->Copy(mine_.q, QAt(here, c_.rank())); !s.ok()) return s;
    for (int step = 0; step <= n; ++step) {
      const bool moves = step + 1 < n, returns = step >= 2;
      if (moves) {
        // After the step before: it read `coming`, and made a part.
        s = c_.Start({here, next, coming, previous, BytesOfQ(OwnerAt(step)),
                      BytesOfQ(OwnerAt(step + 1)), stream_});
      }
      if (returns && s.ok()) {
        const Parts& parts = parts_[step - 1];
        s = c_.Start({parts.made, OwnerAt(step - 1), parts.got, HelperAt(step - 1),
                      parts.bytes_made, parts.bytes_got, stream_});
      }
      // On a GPU this only enqueues.
      if (step < n) {
        if (s.ok()) s = NoteTime();
        if (s.ok()) s = Step(step, QAt(here, OwnerAt(step)));
        s.Update(NoteTime());
      }
      if (moves || returns) {
        // In any case: what travels uses memory of this object.
        s.Update(c_.Wait(absl::StrCat("Q for step ", step + 1, " and parts of O, of ", n)));
        std::swap(here, coming);
      }
      if (returns && s.ok()) s = Merge(parts_[step - 1].jobs_got, parts_[step - 1].got);
      // This rank's own part comes first.
      if (step == 0 && s.ok()) s = Merge(parts_[0].jobs_got, parts_[0].made);
      if (!s.ok()) return s;
    }
    if (s = executor_->Store(mine_.o, mine_.lse); !s.ok()) return s;
    return GiveTimes();
  }

 private:
  std::vector<Job> JobsAt(int step) const override {
    return ring_.JobsOf(OwnerAt(step), c_.rank());
  }
  // Who has this rank's queries.
  int HelperAt(int step) const { return (c_.rank() + step) % c_.ranks(); }

  int64_t BytesOfQ(int rank) const {
    return P().b * ring_.RowsAt(rank) * P().hq * P().d * SizeOf(P().dtype);
  }
  TensorView QAt(void* data, int rank) const {
    return BshdView(data, P().dtype, mine_.q.device, P().b, ring_.RowsAt(rank), P().hq, P().d);
  }

  absl::Status Prepare() override {
    int64_t q = 0;
    parts_.resize(c_.ranks());
    for (int step = 0; step < c_.ranks(); ++step) {
      Parts& parts = parts_[step];
      q = std::max(q, BytesOfQ(OwnerAt(step)));
      parts.jobs_got = ring_.JobsOf(c_.rank(), HelperAt(step));
      parts_of_o_ += static_cast<int64_t>(parts.jobs_got.size());
      for (const PlannedJob& job : jobs_[step]) parts.bytes_made += BytesOfPart(job.plan.problem);
      for (const Job& job : parts.jobs_got) parts.bytes_got += BytesOfPart(job.problem);
      absl::Status s =
          Allocate({{&parts.made, parts.bytes_made}, {&parts.got, step > 0 ? parts.bytes_got : 0}});
      if (!s.ok()) return s;
    }
    return Allocate({{&q_[0], q}, {&q_[1], q}});
  }

  absl::Status Step(int step, const ConstTensorView& q) {
    auto* at = static_cast<char*>(parts_[step].made);
    for (const PlannedJob& job : jobs_[step]) {
      const AttentionProblem& p = job.plan.problem;
      AttentionTensors t = PartAt(at, p, mine_.q.device);
      t.q = SomeRows(q, job.row, p.sq);
      t.k = SomeRows(mine_.k, job.key, p.skv), t.v = SomeRows(mine_.v, job.key, p.skv);
      if (absl::Status s = Forward(job.plan, t, workspace_, stream_); !s.ok()) return s;
      at += BytesOfPart(p);
    }
    return absl::OkStatus();
  }

  absl::Status Merge(const std::vector<Job>& jobs, void* part) {
    auto* at = static_cast<char*>(part);
    for (const Job& job : jobs) {
      const AttentionTensors t = PartAt(at, job.problem, mine_.q.device);
      if (absl::Status s = executor_->Add(t.o, t.lse, job.row); !s.ok()) return s;
      at += BytesOfPart(job.problem);
    }
    return absl::OkStatus();
  }

  // Of each step: what this rank computes, and what another one does for its queries. In step 0 both are its own.
  struct Parts {
    void *made = nullptr, *got = nullptr;
    int64_t bytes_made = 0, bytes_got = 0;
    std::vector<Job> jobs_got;
  };

  void* q_[2] = {};
  std::vector<Parts> parts_;
};

}  // namespace

absl::Status RingOfQ(const AttentionProblem& problem, const RingOptions& options, Communicator& c,
                     const AttentionTensors& mine, void* stream) {
  return QRing(problem, options, c, mine, stream).Run();
}

}  // namespace attnlab::multi_gpu
