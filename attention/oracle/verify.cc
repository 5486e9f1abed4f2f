#include "attention/oracle/verify.h"

#include <algorithm>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/oracle/bare_memory.h"
#include "attention/oracle/buffers.h"
#include "attention/oracle/gpu.h"
#include "attention/oracle/trial.h"

namespace attnlab::oracle {
namespace {

// All rows if the oracle can do them within the budget, else a sample. Half the budget goes to
// reading K and V of as many heads as it allows, half to rows of these heads.
std::vector<Row> ChooseRows(const AttentionProblem& p, const AttentionTensors& host, double budget,
                            uint64_t seed) {
  std::vector<int32_t> q_lens, kv_lens;
  for (int64_t i = 0; i < p.b; ++i) {
    const Sequence sequence = SequenceOf(p, host, i);
    q_lens.push_back(static_cast<int32_t>(sequence.q_len));
    kv_lens.push_back(static_cast<int32_t>(sequence.kv_len));
  }
  const double flops = CompulsoryTraffic(p, false, q_lens, kv_lens).flops;
  if (flops <= budget) return AllRows(p, host);

  std::vector<int64_t> sequences;  // those with rows, the one with the most keys first
  for (int64_t i = 0; i < p.b; ++i) {
    if (q_lens[i] > 0) sequences.push_back(i);
  }
  std::stable_sort(sequences.begin(), sequences.end(),
                   [&](int64_t a, int64_t b) { return kv_lens[a] > kv_lens[b]; });
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
  std::vector<Row> rows;
  for (int64_t i = 0; i < heads; ++i) {
    // The first and the last pair of sequence and KV head, and random ones between.
    const int64_t pair = i == 0 ? 0 : i == 1 ? all_heads - 1 : draw(all_heads);
    const int64_t sequence = sequences[pair / p.hkv];
    const int64_t q_len = q_lens[sequence];
    for (int64_t j = 0; j < rows_per_head; ++j) {
      const int64_t head = (pair % p.hkv) * p.GroupSize() + draw(p.GroupSize());
      rows.push_back({sequence, head, j == 0 ? 0 : j == 1 ? q_len - 1 : draw(q_len)});
    }
  }
  const auto key = [](const Row& r) { return std::tie(r.sequence, r.head, r.row); };
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

Factors FactorsOf(const Plan& plan) {
  return plan.prepared->MultipliesAsTf32() ? Factors::kTf32 : Factors::kAsTheyAre;
}

// Everything that determines the results of OracleOf() for inputs made by Inputs::Make().
std::string OracleKey(const Plan& plan, const VerifyOptions& options) {
  const InputOptions& inputs = options.inputs;
  return absl::StrCat(ToString(plan.device.device), ",", plan.problem.ToString(),
                      ",seed=", inputs.seed, ",values=", Name(inputs.values),
                      ",layout=", Name(inputs.layout), ",factors=", FactorsOf(plan),
                      ",flops=", options.oracle_flops, ",q=", absl::StrJoin(inputs.q_lens, " "),
                      ",kv=", absl::StrJoin(inputs.kv_lens, " "));
}

// ExpectedOf() of the last call is kept, because a problem often comes again at once with another
// configuration or kernel.
absl::StatusOr<const Expected*> KeptExpectedOf(const Plan& plan, const VerifyOptions& options,
                                               const Inputs& inputs) {
  thread_local std::string key;
  thread_local Expected expected;
  const std::string wanted = OracleKey(plan, options);
  if (key == wanted) return &expected;
  key.clear();
  absl::StatusOr<Expected> made = ExpectedOf(plan, inputs.host_tensors(), inputs.tensors(),
                                             options.oracle_flops, options.inputs.seed);
  if (!made.ok()) return made.status();
  expected = *std::move(made);
  key = wanted;
  return &expected;
}

}  // namespace

int64_t RowsInUse(const AttentionProblem& p, const AttentionTensors& host) {
  int64_t rows = 0;
  for (int64_t i = 0; i < p.b; ++i) rows += SequenceOf(p, host, i).q_len * p.hq;
  return rows;
}

absl::StatusOr<Oracle> OracleOf(const Plan& plan, const AttentionTensors& host,
                                const AttentionTensors& there, absl::Span<const Row> rows) {
  if (plan.device.device.kind == DeviceKind::kCuda && !BareMemory()) {
    absl::StatusOr<Oracle> oracle = OracleOnGpu(plan.problem, host, there, rows, FactorsOf(plan));
    // Without memory for it there, or for Q in fp8, the CPU computes it.
    const absl::Status& s = oracle.status();
    if (!absl::IsResourceExhausted(s) && !absl::IsUnimplemented(s)) return oracle;
  }
  absl::StatusOr<Result> exact = Exact(plan.problem, host, rows);
  if (!exact.ok()) return exact.status();
  absl::StatusOr<Result> straightforward =
      Straightforward(plan.problem, host, rows, FactorsOf(plan));
  if (!straightforward.ok()) return straightforward.status();
  return Oracle{*std::move(exact), *std::move(straightforward)};
}

absl::StatusOr<Expected> ExpectedOf(const Plan& plan, const AttentionTensors& host,
                                    const AttentionTensors& there, double oracle_flops,
                                    uint64_t seed) {
  Expected expected;
  expected.rows = ChooseRows(plan.problem, host, oracle_flops, seed);
  absl::StatusOr<Oracle> oracle = OracleOf(plan, host, there, expected.rows);
  if (!oracle.ok()) return oracle.status();
  expected.oracle = *std::move(oracle);
  return expected;
}

Errors ErrorsOf(const Plan& plan, const AttentionTensors& host, const Expected& expected,
                const HostOutputs& outputs) {
  const auto& [rows, oracle] = expected;
  return Compare(plan.problem.dtype, plan.problem.ODType(), rows, oracle.exact,
                 oracle.straightforward, ValuesOf(plan.problem, host, outputs, rows),
                 FactorsOf(plan));
}

absl::StatusOr<VerifyResult> Verify(const Plan& plan, const VerifyOptions& options) {
  absl::StatusOr<Trial> trial = Trial::Make(plan, options.inputs, options.with_lse);
  if (!trial.ok()) return trial.status();
  const AttentionProblem& p = plan.problem;
  const AttentionTensors& host = trial->inputs().host_tensors();
  const absl::StatusOr<const Expected*> expected = KeptExpectedOf(plan, options, trial->inputs());
  if (!expected.ok()) return expected.status();
  absl::StatusOr<Trial::Run> run = trial->RunOnce();
  if (!run.ok()) return run.status();

  VerifyResult result;
  result.rows = RowsInUse(p, host);
  result.rows_checked = static_cast<int64_t>((*expected)->rows.size());
  const Errors errors = ErrorsOf(plan, host, **expected, run->outputs);
  result.o = errors.o;
  result.lse = errors.lse;
  result.message = run->faults;
  if (!result.o.Passed()) absl::StrAppend(&result.message, "o: ", result.o.ToString(), "\n");
  if (!result.lse.Passed()) absl::StrAppend(&result.message, "lse: ", result.lse.ToString(), "\n");
  std::string difference;
  for (int64_t i = 0; i < options.reruns && difference.empty(); ++i) {
    absl::StatusOr<Trial::Run> again = trial->RunOnce(i % 2 == 0 ? kOtherPoison : kPoison);
    if (!again.ok()) return again.status();
    difference = BitDifference(p, host, run->outputs, again->outputs, AllRows(p, host));
  }
  if (!difference.empty()) {
    absl::StrAppend(&result.message,
                    "a second run with different workspace contents: ", difference);
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
  if (options.reruns > 1) absl::StrAppend(&command, " --reruns=", options.reruns);
  if (!options.inputs.q_lens.empty()) {
    absl::StrAppend(&command, " --q_lens=", absl::StrJoin(options.inputs.q_lens, ","));
  }
  if (!options.inputs.kv_lens.empty()) {
    absl::StrAppend(&command, " --kv_lens=", absl::StrJoin(options.inputs.kv_lens, ","));
  }
  return command;
}

}  // namespace attnlab::oracle
