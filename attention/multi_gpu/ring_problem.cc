#include "attention/multi_gpu/ring_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/mask.h"

namespace attnlab::multi_gpu {
namespace {

// For ranks to compare offsets.
uint64_t Digest(const LengthsView& offsets) {
  uint64_t digest = 14695981039346656037u;
  for (int64_t i = 0; i < offsets.count; ++i) {
    digest = (digest ^ static_cast<uint64_t>(offsets.data[i])) * 1099511628211u;
  }
  return digest;
}

// Makes one job of two, where one follows the other and one mask says what both see. A rank's part of a causal problem
// in zigzag order is a causal problem again, for example.
bool Join(Job* first, const Job& second) {
  AttentionProblem &a = first->problem, b = second.problem;
  const bool same_rows = first->row == second.row && a.sq == b.sq,
             same_key = first->key == second.key, keys_follow = first->key + a.skv == second.key,
             rows_follow = first->row + a.sq == second.row;
  const bool all = a.mask == Mask::None(), both_all = all && b.mask == Mask::None(),
             causal = b.mask == Mask::Causal();
  // The mask counts from the last row and key, so the first row of b has to see all before b's keys.
  if (same_rows && keys_follow && (both_all || (all && causal && b.skv >= b.sq))) {
    a.skv += b.skv, a.mask = b.mask;
    return true;
  }
  if (same_key && rows_follow &&
      ((both_all && a.skv == b.skv) ||
       (a.mask == Mask::Causal() && causal && a.skv == b.skv - b.sq))) {
    a.sq += b.sq, a.skv = b.skv;
    return true;
  }
  return false;
}

}  // namespace

absl::Status RingProblem::Make(const AttentionProblem& problem, const RingOptions& options,
                               const Communicator& c, const AttentionTensors& mine,
                               std::string* text) {
  p_ = problem, ranks_ = c.ranks(), order_ = options.order;
  *text = absl::StrCat(p_.ToString(), ",order=", static_cast<int>(options.order),
                       ",kernel=", options.kernel);
  if (absl::Status s = CheckKind("a ring", p_, /*packed=*/true); !s.ok()) return s;
  if (absl::Status s = CheckDevice(mine.q.device, c); !s.ok()) return s;
  absl::StatusOr<std::vector<Sequence>> sequences = SequencesOf(p_, mine);
  if (!sequences.ok()) return sequences.status();
  sequences_ = *std::move(sequences);
  if (p_.lens == Lengths::kPacked) {
    absl::StrAppend(text, ",cu_seqlens_q#", Digest(mine.cu_seqlens_q), ",cu_seqlens_kv#",
                    Digest(mine.cu_seqlens_kv));
    p_.lens = Lengths::kFixed, p_.b = 1;
    p_.sq = sequences_.back().q.end, p_.skv = sequences_.back().kv.end;
  }
  return CheckPart("a ring", p_, RowsAt(c.rank()), KeysAt(c.rank()), mine, /*packed=*/true);
}

std::vector<Job> RingProblem::JobsOf(int rank_of_q, int rank_of_kv) const {
  std::vector<Job> jobs;
  int64_t first_row = 0;
  for (const Chunk& q : Chunks(p_.sq, rank_of_q)) {
    // Of thousands of packed sequences, few lie in a chunk.
    const auto first =
        std::partition_point(sequences_.begin(), sequences_.end(),
                             [&](const Sequence& before) { return before.q.end <= q.begin; });
    int64_t first_key = 0;
    for (const Chunk& keys : Chunks(p_.skv, rank_of_kv)) {
      for (auto it = first; it != sequences_.end() && it->q.begin < q.end; ++it) {
        const Sequence& of = *it;
        const Chunk q_part = Overlap(q, of.q, of.q.begin),
                    kv_part = Overlap(keys, of.kv, of.kv.begin);
        const Piece piece = PieceOf(p_.mask, of.q.size(), of.kv.size(), q_part, kv_part);
        if (piece.rows == 0 || piece.keys == 0) continue;
        AttentionProblem p = p_;
        p.sq = piece.rows, p.skv = piece.keys, p.mask = piece.mask;
        jobs.push_back({p, first_row + of.q.begin + q_part.begin - q.begin,
                        first_key + of.kv.begin + kv_part.begin - keys.begin + piece.first_key});
        while (jobs.size() > 1 && Join(&jobs[jobs.size() - 2], jobs.back())) jobs.pop_back();
      }
      first_key += keys.size();
    }
    first_row += q.size();
  }
  return jobs;
}

Chunk RingProblem::KeysNeeded(int owner, int rank) const {
  const Chunk all = {0, KeysAt(owner)};
  Chunk needed = {all.end, 0};
  for (; rank != owner; rank = (rank + 1) % ranks_) {
    for (const Job& job : JobsOf(rank, owner)) {
      needed.begin = std::min(needed.begin, job.key);
      needed.end = std::max(needed.end, job.key + job.problem.skv);
    }
    if (needed.size() == all.size()) break;
  }
  if (needed.size() <= 0) return {};
  // With several sequences such rows are not in one piece.
  return p_.b > 1 ? all : needed;
}

absl::Status RingCall::Begin() {
  std::string text;
  absl::Status s = ring_.Make(given_, options_, c_, mine_, &text);
  if (s.ok()) s = PlanSteps();
  if (s.ok()) s = Prepare();
  if (s.ok()) s = Allocate({{&workspace_.data, workspace_.bytes}});
  if (s.ok()) s = executor_->Reset(P().b, ring_.RowsAt(c_.rank()), P().hq, P().dv, parts_of_o_);
  return Agree(c_, "problem of a ring", text, s);
}

absl::Status RingCall::PlanSteps() {
  absl::StatusOr<std::unique_ptr<Executor>> executor = MakeExecutor(mine_.q.device, stream_);
  if (!executor.ok()) return executor.status();
  executor_ = *std::move(executor);
  for (int step = 0; step < c_.ranks(); ++step) {
    std::vector<PlannedJob>& jobs = jobs_.emplace_back();
    for (const Job& job : JobsAt(step)) {
      absl::StatusOr<Plan> plan = MakePlan(job.problem, mine_.q.device, options_.kernel);
      if (!plan.ok()) return plan.status();
      workspace_.bytes = std::max(workspace_.bytes, plan->workspace_bytes);
      jobs.push_back({*std::move(plan), job.row, job.key});
    }
  }
  return absl::OkStatus();
}

absl::Status RingCall::Allocate(const Memory& memory) {
  for (const auto& [data, bytes] : memory) {
    const absl::StatusOr<void*> allocated = executor_->Allocate(bytes);
    if (!allocated.ok()) return allocated.status();
    *data = *allocated;
  }
  return absl::OkStatus();
}

absl::Status RingCall::GiveTimes() {
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

}  // namespace attnlab::multi_gpu
