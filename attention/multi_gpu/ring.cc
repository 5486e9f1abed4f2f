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

namespace attnlab::multi_gpu {
namespace {

class Ring {
 public:
  Ring(const AttentionProblem& p, const RingOptions& options, Communicator& c,
       const AttentionTensors& mine, void* stream)
      : p_(p), options_(options), c_(c), mine_(mine), stream_(stream) {}

  absl::Status Run() {
    std::string text = absl::StrCat(p_.ToString(), ",order=", static_cast<int>(options_.order),
                                    ",kernel=", options_.kernel);
    absl::Status s = Check(&text);
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
      s = NoteTime();
      if (s.ok()) s = Step(step, ViewsOf(here, KeysOf(owner)));
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
  // What a step computes: some of this rank's queries, from `row` on, with some of the keys that are here.
  struct Job {
    Plan plan;
    int64_t row, key;
  };

  absl::Status NoteTime() {
    return options_.times == nullptr ? absl::OkStatus() : executor_->NoteTime();
  }
  absl::Status GiveTimes() {
    if (options_.times == nullptr) return absl::OkStatus();
    const absl::StatusOr<std::vector<double>> times = executor_->Times();
    if (!times.ok()) return times.status();
    options_.times->clear();
    for (size_t i = 0; i < times->size(); i += 2) {
      const double begin = (*times)[i], end = (*times)[i + 1];
      options_.times->push_back({end - begin, i == 0 ? 0 : begin - (*times)[i - 1]});
    }
    return absl::OkStatus();
  }

  // For ranks to compare offsets.
  static uint64_t Digest(const LengthsView& offsets) {
    uint64_t digest = 14695981039346656037u;
    for (int64_t i = 0; i < offsets.count; ++i) {
      digest = (digest ^ static_cast<uint64_t>(offsets.data[i])) * 1099511628211u;
    }
    return digest;
  }

  std::vector<Chunk> Chunks(int64_t length, int rank) const {
    return ChunksOf(length, c_.ranks(), rank, options_.order);
  }
  int64_t KeysOf(int rank) const { return RowsOf(Chunks(p_.skv, rank)); }
  // Whose K and V are here.
  int OwnerAt(int step) const { return (c_.rank() + c_.ranks() - step) % c_.ranks(); }

  // K and V lie one after the other in what travels, both aligned as kernels want them.
  int64_t BytesOfK(int64_t keys) const {
    return AlignedBytes(p_.b * keys * p_.hkv * p_.d * SizeOf(p_.dtype));
  }
  int64_t BytesOf(int rank) const {
    const int64_t keys = KeysOf(rank);
    return BytesOfK(keys) + p_.b * keys * p_.hkv * p_.dv * SizeOf(p_.dtype);
  }

  // Also finds the sequences. Then p_ is the problem of a piece, but for its lengths and mask.
  absl::Status Check(std::string* text) {
    const Supported supported = {/*packed=*/true, /*gpu=*/true};
    if (absl::Status s = CheckKind("a ring", p_, mine_, supported); !s.ok()) return s;
    if (absl::Status s = CheckDevice(mine_.q.device, c_); !s.ok()) return s;
    absl::StatusOr<std::vector<Sequence>> sequences = SequencesOf(p_, mine_);
    if (!sequences.ok()) return sequences.status();
    sequences_ = *std::move(sequences);
    if (p_.lens == Lengths::kPacked) {
      absl::StrAppend(text, ",cu_seqlens_q#", Digest(mine_.cu_seqlens_q), ",cu_seqlens_kv#",
                      Digest(mine_.cu_seqlens_kv));
      p_.lens = Lengths::kFixed, p_.b = 1;
      p_.sq = sequences_.back().q.end, p_.skv = sequences_.back().kv.end;
    }
    q_chunks_ = Chunks(p_.sq, c_.rank());
    return CheckPart("a ring", p_, RowsOf(q_chunks_), KeysOf(c_.rank()), mine_, supported);
  }

  // Plans and allocates for all steps, so that none of them waits for that.
  absl::Status Prepare() {
    absl::StatusOr<std::unique_ptr<Executor>> executor = MakeExecutor(mine_.q.device, stream_);
    if (!executor.ok()) return executor.status();
    executor_ = *std::move(executor);
    for (int step = 0; step < c_.ranks(); ++step) {
      if (absl::Status s = PlanStep(Chunks(p_.skv, OwnerAt(step))); !s.ok()) return s;
    }
    int64_t rows = 0;  // of the largest part
    for (const std::vector<Job>& jobs : jobs_) {
      for (const Job& job : jobs) {
        rows = std::max(rows, job.plan.problem.sq);
        workspace_.bytes = std::max(workspace_.bytes, job.plan.workspace_bytes);
      }
    }
    int64_t kv = 0;
    for (int rank = 0; rank < c_.ranks(); ++rank) kv = std::max(kv, BytesOf(rank));
    const int64_t heads = p_.b * rows * p_.hq;
    const std::pair<void**, int64_t> memory[] = {{&kv_[0], kv},
                                                 {&kv_[1], c_.ranks() > 1 ? kv : 0},
                                                 {&o_, heads * p_.dv * SizeOf(p_.ODType())},
                                                 {&lse_, heads * SizeOf(DType::kFloat32)},
                                                 {&workspace_.data, workspace_.bytes}};
    for (const auto& [data, bytes] : memory) {
      const absl::StatusOr<void*> allocated = executor_->Allocate(bytes);
      if (!allocated.ok()) return allocated.status();
      *data = *allocated;
    }
    return executor_->Reset(p_.b, RowsOf(q_chunks_), p_.hq, p_.dv);
  }

  // This rank's queries with these keys.
  absl::Status PlanStep(const std::vector<Chunk>& kv_chunks) {
    std::vector<Job>& jobs = jobs_.emplace_back();
    int64_t first_row = 0;
    for (const Chunk& q : q_chunks_) {
      int64_t first_key = 0;
      for (const Chunk& keys : kv_chunks) {
        for (const Sequence& of : sequences_) {
          const Chunk q_part = Overlap(q, of.q, of.q.begin),
                      kv_part = Overlap(keys, of.kv, of.kv.begin);
          const Piece piece = PieceOf(p_.mask, of.q.size(), of.kv.size(), q_part, kv_part);
          if (piece.rows == 0 || piece.keys == 0) continue;
          AttentionProblem p = p_;
          p.sq = piece.rows, p.skv = piece.keys, p.mask = piece.mask;
          absl::StatusOr<Plan> plan = MakePlan(p, mine_.q.device, options_.kernel);
          if (!plan.ok()) return plan.status();
          jobs.push_back({*std::move(plan), first_row + of.q.begin + q_part.begin - q.begin,
                          first_key + of.kv.begin + kv_part.begin - keys.begin});
        }
        first_key += keys.size();
      }
      first_row += q.size();
    }
    return absl::OkStatus();
  }

  struct Pair {
    TensorView k, v;
  };
  Pair ViewsOf(void* kv, int64_t keys) const {
    void* const v = static_cast<char*>(kv) + BytesOfK(keys);
    const Device there = mine_.q.device;
    return {BshdView(kv, p_.dtype, there, p_.b, keys, p_.hkv, p_.d),
            BshdView(v, p_.dtype, there, p_.b, keys, p_.hkv, p_.dv)};
  }
  absl::Status Pack(void* kv) {
    const Pair to = ViewsOf(kv, KeysOf(c_.rank()));
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
    for (const Job& job : jobs_[step]) {
      const AttentionProblem& p = job.plan.problem;
      const Device there = mine_.q.device;
      AttentionTensors t;
      t.q = SomeRows(mine_.q, job.row, p.sq);
      t.k = SomeRows(kv.k, job.key, p.skv), t.v = SomeRows(kv.v, job.key, p.skv);
      t.o = BshdView(o_, p.ODType(), there, p.b, p.sq, p.hq, p.dv);
      t.lse = LseView(static_cast<float*>(lse_), there, p.b, p.sq, p.hq);
      absl::Status s = Forward(job.plan, t, workspace_, stream_);
      // Before the merge, which does not read K and V: so the next transfer finds multiprocessors free.
      if (s.ok()) s = Record();
      if (s.ok()) s = executor_->Add(t.o, t.lse, job.row);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  AttentionProblem p_;
  const RingOptions options_;
  Communicator& c_;
  const AttentionTensors mine_;
  void* const stream_;
  std::vector<Sequence> sequences_;
  std::vector<Chunk> q_chunks_;
  std::vector<std::vector<Job>> jobs_;  // of each step
  std::unique_ptr<Executor> executor_;
  // Two of K and V, and a part's O and LSE.
  void *kv_[2] = {}, *o_ = nullptr, *lse_ = nullptr;
  Workspace workspace_;
  void* read_ = nullptr;  // an event: what has been enqueued so far has read K and V
};

}  // namespace

absl::Status RingForward(const AttentionProblem& problem, const RingOptions& options,
                         Communicator& c, const AttentionTensors& mine, void* stream) {
  return Ring(problem, options, c, mine, stream).Run();
}

}  // namespace attnlab::multi_gpu
