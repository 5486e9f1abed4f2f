#include "attention/testing/verify.h"

#include <algorithm>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/reference/reference.h"
#include "attention/testing/buffers.h"
#include "attention/testing/trial.h"

namespace attnlab::testing {
namespace {

int64_t RowsInUse(const AttentionProblem& p, const Inputs& inputs) {
  int64_t rows = 0;
  for (int32_t q_len : inputs.q_lens()) rows += q_len * p.hq;
  return rows;
}

// All rows if the oracle can do them within the budget, else a sample: half the budget goes to
// reading K and V of as many heads as it allows, half to rows of these heads.
std::vector<reference::Row> ChooseRows(const AttentionProblem& p, const Inputs& inputs,
                                       double budget, uint64_t seed) {
  const double flops = CompulsoryTraffic(p, false, inputs.q_lens(), inputs.kv_lens()).flops;
  if (flops <= budget) return reference::AllRows(p, inputs.host_tensors());

  std::vector<int64_t> sequences;  // with rows, the longest first
  for (int64_t i = 0; i < p.b; ++i) {
    if (inputs.q_lens()[i] > 0) sequences.push_back(i);
  }
  std::stable_sort(sequences.begin(), sequences.end(),
                   [&](int64_t a, int64_t b) { return inputs.kv_lens()[a] > inputs.kv_lens()[b]; });
  // Converting an element costs about as much as 8 operations on it.
  const double row_flops = 2.0 * static_cast<double>(p.skv) * static_cast<double>(p.d + p.dv);
  const int64_t all_heads = static_cast<int64_t>(sequences.size()) * p.hkv;
  const int64_t heads =
      std::clamp<int64_t>(static_cast<int64_t>(budget / 2 / (4 * row_flops)),
                          std::min<int64_t>(4, all_heads), std::min<int64_t>(256, all_heads));
  const int64_t rows_per_head = std::max<int64_t>(
      8, static_cast<int64_t>(budget / 2 / (static_cast<double>(heads) * row_flops)));

  std::mt19937_64 random(seed);
  const auto draw = [&random](int64_t count) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
  };
  std::vector<reference::Row> rows;
  for (int64_t i = 0; i < heads; ++i) {
    // The first and the last of all pairs of sequence and KV head, and some between.
    const int64_t pair = i == 0 ? 0 : i == 1 ? all_heads - 1 : draw(all_heads);
    const int64_t sequence = sequences[pair / p.hkv];
    const int64_t q_len = inputs.q_lens()[sequence];
    for (int64_t j = 0; j < rows_per_head; ++j) {
      const int64_t head = (pair % p.hkv) * p.GroupSize() + draw(p.GroupSize());
      rows.push_back({sequence, head, j == 0 ? 0 : j == 1 ? q_len - 1 : draw(q_len)});
    }
  }
  const auto key = [](const reference::Row& r) { return std::tie(r.sequence, r.head, r.row); };
  std::sort(rows.begin(), rows.end(),
            [&](const reference::Row& a, const reference::Row& b) { return key(a) < key(b); });
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace

absl::StatusOr<VerifyResult> Verify(const Plan& plan, const VerifyOptions& options) {
  absl::StatusOr<Trial> trial = Trial::Make(plan, options.inputs, options.with_lse);
  if (!trial.ok()) return trial.status();
  absl::StatusOr<Trial::Run> run = trial->RunOnce();
  if (!run.ok()) return run.status();

  const AttentionProblem& p = plan.problem;
  const AttentionTensors& host = trial->inputs().host_tensors();
  const std::vector<reference::Row> rows =
      ChooseRows(p, trial->inputs(), options.oracle_flops, options.inputs.seed);
  absl::StatusOr<reference::Result> exact = reference::Exact(p, host, rows);
  if (!exact.ok()) return exact.status();
  const reference::Factors factors = plan.kernel->MultipliesAsTf32(p, plan.config)
                                         ? reference::Factors::kTf32
                                         : reference::Factors::kAsTheyAre;
  absl::StatusOr<reference::Result> straightforward =
      reference::Straightforward(p, host, rows, factors);
  if (!straightforward.ok()) return straightforward.status();

  VerifyResult result;
  result.rows = RowsInUse(p, trial->inputs());
  result.rows_checked = static_cast<int64_t>(rows.size());
  const Errors errors = Compare(p.dtype, rows, *exact, *straightforward,
                                ValuesOf(p, host, run->outputs, rows), factors);
  result.o = errors.o;
  result.lse = errors.lse;
  result.message = run->faults;
  if (!result.o.Passed()) absl::StrAppend(&result.message, "o: ", result.o.ToString(), "\n");
  if (!result.lse.Passed()) absl::StrAppend(&result.message, "lse: ", result.lse.ToString(), "\n");
  if (options.rerun) {
    absl::StatusOr<Trial::Run> again = trial->RunOnce(kOtherPoison);
    if (!again.ok()) return again.status();
    const std::string difference =
        BitDifference(p, host, run->outputs, again->outputs, reference::AllRows(p, host));
    if (!difference.empty()) {
      absl::StrAppend(&result.message,
                      "a second run, from another content of the workspace: ", difference);
    }
  }
  result.passed = result.message.empty();
  if (!result.passed) {
    absl::StrAppend(&result.message, ReproduceCommand(plan, options), "\n");
  }
  return result;
}

std::string ReproduceCommand(const Plan& plan, const VerifyOptions& options) {
  std::string command =
      absl::StrCat("attnlab verify --kernel=", plan.kernel->traits().name,
                   " --problem=", plan.problem.ToString(), " --seed=", options.inputs.seed);
  if (options.inputs.layout != Layout::kBshd) {
    absl::StrAppend(&command, " --layout=", Name(options.inputs.layout));
  }
  if (options.inputs.values != Values::kNormal) {
    absl::StrAppend(&command, " --values=", Name(options.inputs.values));
  }
  if (!plan.config.empty()) absl::StrAppend(&command, " --config=", plan.config.ToString());
  if (!options.with_lse) absl::StrAppend(&command, " --lse=false");
  if (!options.inputs.q_lens.empty()) {
    absl::StrAppend(&command, " --q_lens=", absl::StrJoin(options.inputs.q_lens, ","));
  }
  if (!options.inputs.kv_lens.empty()) {
    absl::StrAppend(&command, " --kv_lens=", absl::StrJoin(options.inputs.kv_lens, ","));
  }
  return command;
}

}  // namespace attnlab::testing
