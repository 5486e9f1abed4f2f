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
  std::optional<Plan> plan;
  std::unique_ptr<Executor> executor;
  Workspace workspace;
  if (s.ok()) {
    p.hkv = KvHeadsOf(problem, c.ranks(), c.rank()).size();
    p.hq = p.hkv * (problem.hq / problem.hkv);
  }
  const auto prepare = [&]() -> absl::Status {
    absl::StatusOr<Plan> made = MakePlan(p, mine.q.device, kernel);
    if (!made.ok()) return made.status();
    plan = *std::move(made);
    absl::StatusOr<std::unique_ptr<Executor>> of = MakeExecutor(mine.q.device, stream);
    if (!of.ok()) return of.status();
    executor = *std::move(of);
    const absl::StatusOr<void*> memory = executor->Allocate(plan->workspace_bytes);
    if (!memory.ok()) return memory.status();
    workspace = {*memory, plan->workspace_bytes};
    return absl::OkStatus();
  };
  if (s.ok() && p.hkv > 0) s = prepare();
  const std::string text = absl::StrCat(problem.ToString(), ",kernel=", kernel);
  if (s = Agree(c, "problem of heads", text, s); !s.ok()) return s;
  return plan.has_value() ? Forward(*plan, mine, workspace, stream) : absl::OkStatus();
}

}  // namespace attnlab::multi_gpu
