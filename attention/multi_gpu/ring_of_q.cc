// A ring in which Q travels, where that is less than K and V. What a rank computes for another one's queries goes back
// to it, while the next step is computed:
//
//           step 0         step 1         step 2          (3 ranks; K and V stay)
//   rank 0  Q0 with KV 0   Q2 with KV 0   Q1 with KV 0
//                                         part to rank 2  part to rank 1
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/cuda/memory.h"
#include "attention/multi_gpu/ring_problem.h"

namespace attnlab::multi_gpu {
namespace {

class QRing {
 public:
  QRing(const AttentionProblem& p, const RingOptions& options, Communicator& c,
        const AttentionTensors& mine, void* stream)
      : given_(p), options_(options), c_(c), mine_(mine), stream_(stream) {}

  absl::Status Run() {
    std::string text;
    absl::Status s = ring_.Make(given_, options_, c_, mine_, &text);
    if (s.ok()) s = Prepare();
    if (s = Agree(c_, "problem of a ring", text, s); !s.ok()) return s;

    const int n = c_.ranks(), next = (c_.rank() + 1) % n, previous = (c_.rank() + n - 1) % n;
    void *here = q_[0], *coming = q_[1];
    if (s = executor_->Copy(mine_.q, QAt(here, c_.rank())); !s.ok()) return s;
    for (int step = 0; step <= n; ++step) {
      // After the step before: it read `coming`, and made a part.
      const absl::StatusOr<void*> computed = executor_->Record();
      if (s = computed.status(); !s.ok()) return s;
      const bool moves = step + 1 < n, returns = step >= 2;
      if (moves) {
        s = c_.Start({here, next, coming, previous, BytesOfQ(OwnerAt(step)),
                      BytesOfQ(OwnerAt(step + 1)), *computed});
      }
      if (returns && s.ok()) {
        const int to = OwnerAt(step - 1), from = HelperAt(step - 1);
        s = c_.Start({parts_[step - 1].made, to, parts_[step - 1].got, from,
                      BytesOfPart(to, c_.rank()), BytesOfPart(c_.rank(), from), *computed});
      }
      if (!s.ok()) return s;
      // On a GPU this only enqueues.
      if (step < n) {
        s = NoteTime(options_, *executor_);
        if (s.ok()) s = Step(step, QAt(here, OwnerAt(step)));
        s.Update(NoteTime(options_, *executor_));
      }
      if (moves || returns) {
        s.Update(c_.Wait(absl::StrCat("Q for step ", step + 1, " and parts of O, of ", n)));
        std::swap(here, coming);
      }
      if (returns && s.ok()) s = Merge(c_.rank(), HelperAt(step - 1), parts_[step - 1].got);
      // This rank's own part comes first.
      if (step == 0 && s.ok()) s = Merge(c_.rank(), c_.rank(), parts_[0].made);
      if (!s.ok()) return s;
    }
    if (s = executor_->Store(mine_.o, mine_.lse); !s.ok()) return s;
    return GiveTimes(options_, *executor_);
  }

 private:
  const AttentionProblem& P() const { return ring_.whole(); }
  // Whose Q is here, and who has this rank's.
  int OwnerAt(int step) const { return (c_.rank() + 2 * c_.ranks() - step) % c_.ranks(); }
  int HelperAt(int step) const { return (c_.rank() + step) % c_.ranks(); }

  int64_t BytesOfQ(int rank) const {
    return P().b * ring_.RowsAt(rank) * P().hq * P().d * SizeOf(P().dtype);
  }
  TensorView QAt(void* data, int rank) const {
    return BshdView(data, P().dtype, mine_.q.device, P().b, ring_.RowsAt(rank), P().hq, P().d);
  }

  // A part has LSE and O of each job.
  static int64_t BytesOfLse(const AttentionProblem& p) {
    return AlignedBytes(p.b * p.sq * p.hq * SizeOf(DType::kFloat32));
  }
  static int64_t BytesOfJob(const AttentionProblem& p) {
    return BytesOfLse(p) + AlignedBytes(p.b * p.sq * p.hq * p.dv * SizeOf(p.ODType()));
  }
  int64_t BytesOfPart(int rank_of_q, int rank_of_kv) const {
    int64_t bytes = 0;
    for (const Job& job : ring_.JobsOf(rank_of_q, rank_of_kv)) bytes += BytesOfJob(job.problem);
    return bytes;
  }
  // O and LSE of a job.
  AttentionTensors OutputsAt(char* at, const AttentionProblem& p) const {
    const Device there = mine_.q.device;
    AttentionTensors t;
    t.lse = LseView(reinterpret_cast<float*>(at), there, p.b, p.sq, p.hq);
    t.o =
        BshdView(static_cast<void*>(at + BytesOfLse(p)), p.ODType(), there, p.b, p.sq, p.hq, p.dv);
    return t;
  }

  absl::Status Prepare() {
    absl::StatusOr<std::unique_ptr<Executor>> executor = MakeExecutor(mine_.q.device, stream_);
    if (!executor.ok()) return executor.status();
    executor_ = *std::move(executor);
    int64_t q = 0;
    for (int step = 0; step < c_.ranks(); ++step) {
      absl::StatusOr<std::vector<PlannedJob>> jobs =
          PlansOf(ring_.JobsOf(OwnerAt(step), c_.rank()), mine_.q.device, options_.kernel,
                  &workspace_.bytes);
      if (!jobs.ok()) return jobs.status();
      jobs_.push_back(*std::move(jobs));
      q = std::max(q, BytesOfQ(OwnerAt(step)));
    }
    parts_.resize(c_.ranks());
    std::vector<std::pair<void**, int64_t>> memory = {
        {&q_[0], q}, {&q_[1], q}, {&workspace_.data, workspace_.bytes}};
    for (int step = 0; step < c_.ranks(); ++step) {
      memory.push_back({&parts_[step].made, BytesOfPart(OwnerAt(step), c_.rank())});
      memory.push_back({&parts_[step].got, BytesOfPart(c_.rank(), HelperAt(step))});
    }
    for (const auto& [data, bytes] : memory) {
      const absl::StatusOr<void*> allocated = executor_->Allocate(bytes);
      if (!allocated.ok()) return allocated.status();
      *data = *allocated;
    }
    return executor_->Reset(P().b, ring_.RowsAt(c_.rank()), P().hq, P().dv);
  }

  absl::Status Step(int step, const ConstTensorView& q) {
    auto* at = static_cast<char*>(parts_[step].made);
    for (const PlannedJob& job : jobs_[step]) {
      const AttentionProblem& p = job.plan.problem;
      AttentionTensors t = OutputsAt(at, p);
      t.q = SomeRows(q, job.row, p.sq);
      t.k = SomeRows(mine_.k, job.key, p.skv), t.v = SomeRows(mine_.v, job.key, p.skv);
      if (absl::Status s = Forward(job.plan, t, workspace_, stream_); !s.ok()) return s;
      at += BytesOfJob(p);
    }
    return absl::OkStatus();
  }

  absl::Status Merge(int rank_of_q, int rank_of_kv, void* part) {
    auto* at = static_cast<char*>(part);
    for (const Job& job : ring_.JobsOf(rank_of_q, rank_of_kv)) {
      const AttentionTensors t = OutputsAt(at, job.problem);
      if (absl::Status s = executor_->Add(t.o, t.lse, job.row); !s.ok()) return s;
      at += BytesOfJob(job.problem);
    }
    return absl::OkStatus();
  }

  // Of each step: what this rank computes, and what another one does for its queries.
  struct Parts {
    void *made = nullptr, *got = nullptr;
  };

  const AttentionProblem given_;
  const RingOptions options_;
  Communicator& c_;
  const AttentionTensors mine_;
  void* const stream_;
  RingProblem ring_;
  std::vector<std::vector<PlannedJob>> jobs_;  // of each step
  std::unique_ptr<Executor> executor_;
  void* q_[2] = {};
  std::vector<Parts> parts_;
  Workspace workspace_;
};

}  // namespace

absl::Status RingOfQ(const AttentionProblem& problem, const RingOptions& options, Communicator& c,
                     const AttentionTensors& mine, void* stream) {
  return QRing(problem, options, c, mine, stream).Run();
}

}  // namespace attnlab::multi_gpu
