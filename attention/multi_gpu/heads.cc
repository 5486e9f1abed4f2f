#include "attention/multi_gpu/heads.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/multi_gpu/executor.h"

namespace attnlab::multi_gpu {

Chunk KvHeadsOf(const AttentionProblem& problem, int ranks, int rank) {
  return ChunksOf(problem.hkv, ranks, rank, Order::kInOrder)[0];
}

absl::Status HeadsForward(const AttentionProblem& problem, const std::string& kernel,
                          Communicator& c, const AttentionTensors& mine, void* stream) {
  AttentionProblem p = problem;
  absl::Status s = p.Validate();
  std::unique_ptr<Executor> executor;
  std::optional<Call> call;
  if (s.ok()) {
    p.hkv = KvHeadsOf(problem, c.ranks(), c.rank()).size();
    p.hq = p.hkv * (problem.hq / problem.hkv);
  }
  const auto prepare = [&]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<Executor>> of = MakeExecutor(mine.q.device, stream);
    if (!of.ok()) return of.status();
    executor = *std::move(of);
    absl::StatusOr<Call> planned = PlanCall(p, mine.q.device, kernel, *executor);
    if (planned.ok()) call = *std::move(planned);
    return planned.status();
  };
  if (s.ok() && p.hkv > 0) s = prepare();
  const std::string text = absl::StrCat(problem.ToString(), ",kernel=", kernel);
  if (s = Agree(c, "problem of heads", text, s); !s.ok()) return s;
  return call.has_value() ? Forward(call->plan, mine, call->workspace, stream) : absl::OkStatus();
}

}  // namespace attnlab::multi_gpu
