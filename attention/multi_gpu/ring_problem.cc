#include "attention/multi_gpu/ring_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

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

}  // namespace

absl::Status RingProblem::Make(const AttentionProblem& problem, const RingOptions& options,
                               const Communicator& c, const AttentionTensors& mine,
                               std::string* text) {
  p_ = problem, ranks_ = c.ranks(), order_ = options.order;
  *text = absl::StrCat(p_.ToString(), ",order=", static_cast<int>(options.order),
                       ",kernel=", options.kernel);
  const Supported supported = {/*packed=*/true, /*gpu=*/true};
  if (absl::Status s = CheckKind("a ring", p_, mine, supported); !s.ok()) return s;
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
  return CheckPart("a ring", p_, RowsAt(c.rank()), KeysAt(c.rank()), mine, supported);
}

std::vector<Job> RingProblem::JobsOf(int rank_of_q, int rank_of_kv) const {
  std::vector<Job> jobs;
  int64_t first_row = 0;
  for (const Chunk& q : Chunks(p_.sq, rank_of_q)) {
    int64_t first_key = 0;
    for (const Chunk& keys : Chunks(p_.skv, rank_of_kv)) {
      for (const Sequence& of : sequences_) {
        const Chunk q_part = Overlap(q, of.q, of.q.begin),
                    kv_part = Overlap(keys, of.kv, of.kv.begin);
        const Piece piece = PieceOf(p_.mask, of.q.size(), of.kv.size(), q_part, kv_part);
        if (piece.rows == 0 || piece.keys == 0) continue;
        AttentionProblem p = p_;
        p.sq = piece.rows, p.skv = piece.keys, p.mask = piece.mask;
        jobs.push_back({p, first_row + of.q.begin + q_part.begin - q.begin,
                        first_key + of.kv.begin + kv_part.begin - keys.begin});
      }
      first_key += keys.size();
    }
    first_row += q.size();
  }
  return jobs;
}

absl::StatusOr<std::vector<PlannedJob>> PlansOf(const std::vector<Job>& jobs, Device device,
                                                const std::string& kernel,
                                                int64_t* workspace_bytes) {
  std::vector<PlannedJob> planned;
  for (const Job& job : jobs) {
    absl::StatusOr<Plan> plan = MakePlan(job.problem, device, kernel);
    if (!plan.ok()) return plan.status();
    *workspace_bytes = std::max(*workspace_bytes, plan->workspace_bytes);
    planned.push_back({*std::move(plan), job.row, job.key});
  }
  return planned;
}

absl::Status NoteTime(const RingOptions& options, Executor& executor) {
  return options.times == nullptr ? absl::OkStatus() : executor.NoteTime();
}

absl::Status GiveTimes(const RingOptions& options, Executor& executor) {
  if (options.times == nullptr) return absl::OkStatus();
  const absl::StatusOr<std::vector<double>> times = executor.Times();
  if (!times.ok()) return times.status();
  options.times->clear();
  for (size_t i = 0; i < times->size(); i += 2) {
    const double begin = (*times)[i], end = (*times)[i + 1];
    options.times->push_back({end - begin, i == 0 ? 0 : begin - (*times)[i - 1]});
  }
  return absl::OkStatus();
}

}  // namespace attnlab::multi_gpu
