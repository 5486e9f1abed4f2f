#include "attention/conformance/conformance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/attention.h"
#include "attention/conformance/intermediates.h"
#include "attention/conformance/stream_checks.h"
#include "attention/oracle/bare_memory.h"
#include "attention/oracle/buffers.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/tolerance.h"
#include "attention/oracle/trial.h"
#include "attention/oracle/verify.h"

namespace attnlab::conformance {
namespace {

using oracle::Result;
using oracle::Row;

bool Always(const Case&) { return true; }
bool Masked(const Case& c) { return c.problem.mask != Mask::None(); }
bool Batched(const Case& c) { return c.problem.b > 1; }

// Under a tool that slows every launch, only the cases that reach every loop. bf16 has the tiles of
// fp16. fp32's loops are those of head dims 64 (3xTF32, 32 rows per warp), 128 (16 rows) and 256
// (one stage).
bool WithConfigs(const Case& c) {
  if (!c.every_config) return c.number % 4 == 0;
  if (!oracle::BareMemory() || c.problem.dtype == DType::kFloat16) return true;
  const int64_t d = c.problem.d;
  return c.problem.dtype == DType::kFloat32 && (d == 64 || d == 128 || d == 256);
}
bool Fixed(const Case& c) { return c.problem.lens == Lengths::kFixed; }

oracle::VerifyOptions OptionsOf(const Case& c) {
  oracle::VerifyOptions options;
  options.inputs = c.inputs;
  options.with_lse = c.with_lse;
  options.reruns = oracle::BareMemory() ? 0 : 1;
  return options;
}

// Adds the command that reproduces the case, for checks that `attnlab verify` can repeat.
absl::Status Wrong(const Plan& plan, const Case& c, absl::string_view message) {
  return absl::InternalError(absl::StrCat(message,
                                          message.empty() || message.back() != '\n' ? "\n" : "",
                                          oracle::ReproduceCommand(plan, OptionsOf(c)), "\n"));
}

absl::Status VerifyPlan(const Plan& plan, const Case& c) {
  absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(plan, OptionsOf(c));
  if (!result.ok()) return NotDeclined(result.status());
  return result->passed ? absl::OkStatus() : absl::InternalError(result->message);
}

absl::Status MatchesOracle(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  return plan.ok() ? VerifyPlan(*plan, c) : plan.status();
}

// Runs the case with other values, and compares with what `expect` makes of the oracle's result.
template <typename Expect>
absl::Status CompareWith(const Subject& subject, Case c, oracle::Values values,
                         const Expect& expect) {
  c.inputs.values = values;
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(*plan, c.inputs, c.with_lse);
  if (!trial.ok()) return NotDeclined(trial.status());
  absl::StatusOr<oracle::Trial::Run> run = trial->RunOnce();
  if (!run.ok()) return NotDeclined(run.status());
  const AttentionTensors& t = trial->inputs().host_tensors();
  const std::vector<Row> rows = oracle::AllRows(c.problem, t);
  absl::StatusOr<oracle::Oracle> oracle =
      oracle::OracleOf(*plan, trial->inputs().host_tensors(), trial->inputs().tensors(), rows);
  if (!oracle.ok()) return NotDeclined(oracle.status());
  Result& exact = oracle->exact;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sequence s = SequenceOf(c.problem, t, rows[i].sequence);
    expect(t, s, rows[i], VisibleKv(c.problem.mask, rows[i].row, s.q_len, s.kv_len),
           &exact.o[i * c.problem.dv], &exact.lse[i]);
  }
  const oracle::Errors errors =
      oracle::Compare(c.problem.dtype, c.problem.ODType(), rows, exact, oracle->straightforward,
                      oracle::ValuesOf(c.problem, t, run->outputs, rows));
  std::string message;
  if (!errors.o.Passed()) absl::StrAppend(&message, "o: ", errors.o.ToString(), "\n");
  if (!errors.lse.Passed()) absl::StrAppend(&message, "lse: ", errors.lse.ToString(), "\n");
  return message.empty() ? absl::OkStatus() : Wrong(*plan, c, message);
}

absl::Status ZeroQGivesMeanOfV(const Subject& subject, const Case& c) {
  const AttentionProblem& p = c.problem;
  return CompareWith(subject, c, oracle::Values::kZeroQ,
                     [&p](const AttentionTensors& t, const Sequence& s, const Row& row,
                          KvRange seen, double* o, double* lse) {
                       const double keys = static_cast<double>(seen.end - seen.begin);
                       const int64_t head = row.head / p.GroupSize();
                       std::fill(o, o + p.dv, 0.0);
                       for (int64_t j = seen.begin; j < seen.end; ++j) {
                         const KeyPlace place = PlaceOf(p, t, s, j);
                         const double scale = ScaleOf(p, t.v_scale, row.sequence, head, j);
                         const int64_t at = t.v.Offset(place.batch, place.row, head, 0);
                         for (int64_t i = 0; i < p.dv; ++i) {
                           o[i] += scale * LoadElement(t.v.data, t.v.dtype, at + i) / keys;
                         }
                       }
                       *lse = std::log(keys);
                     });
}

absl::Status ConstantVGivesV(const Subject& subject, const Case& c) {
  return CompareWith(subject, c, oracle::Values::kConstantV,
                     [&c](const AttentionTensors& t, const Sequence&, const Row& row, KvRange seen,
                          double* o, double*) {
                       const AttentionProblem& p = c.problem;
                       if (p.scale_block != 0) return;  // V is constant in each block only
                       const float v =
                           ScaleOf(p, t.v_scale, row.sequence, row.head / p.GroupSize());
                       std::fill(o, o + p.dv, seen.begin < seen.end ? double{v} : 0.0);
                     });
}

// Runs the case twice, the second time after `change` has changed the inputs. Compares the bits of
// the rows for which `kept` holds.
template <typename Change, typename Kept>
absl::Status KeepsBits(const Plan& plan, const Case& c, absl::string_view what,
                       const Change& change, const Kept& kept) {
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(plan, c.inputs, c.with_lse);
  if (!trial.ok()) return NotDeclined(trial.status());
  absl::StatusOr<oracle::Trial::Run> before = trial->RunOnce();
  if (!before.ok()) return NotDeclined(before.status());
  if (absl::Status s = change(trial->inputs()); !s.ok()) return NotDeclined(s);
  absl::StatusOr<oracle::Trial::Run> after = trial->RunOnce();
  if (!after.ok()) return NotDeclined(after.status());

  const AttentionTensors& t = trial->inputs().host_tensors();
  std::vector<Row> rows;
  for (const Row& row : oracle::AllRows(c.problem, t)) {
    if (kept(row, SequenceOf(c.problem, t, row.sequence))) rows.push_back(row);
  }
  const std::string difference =
      oracle::BitDifference(c.problem, t, before->outputs, after->outputs, rows);
  return difference.empty() ? absl::OkStatus()
                            : absl::InternalError(absl::StrCat(what, ": ", difference));
}

absl::Status HiddenKeysHaveNoInfluence(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  const Mask& mask = c.problem.mask;
  // Cuts each sequence at a row. The number of rows before the cut is drawn from the seed.
  const auto cut = [&c](int64_t q_len) {
    return static_cast<int64_t>(c.inputs.seed * 2654435761u % static_cast<uint64_t>(q_len + 1));
  };
  // The O of a row that sees no key may be a sum of 0 × hidden V, which is a zero of either sign.
  const auto sees_some = [&](const Row& row, const Sequence& s) {
    const KvRange seen = VisibleKv(mask, row.row, s.q_len, s.kv_len);
    return seen.begin < seen.end;
  };
  const auto change = [&](oracle::Inputs& inputs, bool future) -> absl::Status {
    for (int64_t i = 0; i < c.problem.b; ++i) {
      const int64_t q_len = inputs.q_lens()[i], kv_len = inputs.kv_lens()[i];
      const int64_t row = cut(q_len);
      int64_t begin = 0, end = kv_len;
      if (future && row > 0) begin = VisibleKv(mask, row - 1, q_len, kv_len).end;
      if (!future && row < q_len) end = VisibleKv(mask, row, q_len, kv_len).begin;
      absl::Status s = inputs.ChangeKv(i, begin, end, oracle::Inputs::Fill::kOtherNumbers);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  };
  absl::Status s = KeepsBits(
      *plan, c, "other K and V in the future of these rows",
      [&](oracle::Inputs& inputs) { return change(inputs, true); },
      [&](const Row& row, const Sequence& s) {
        return row.row < cut(s.q_len) && sees_some(row, s);
      });
  if (!s.ok() || mask.kind != Mask::Kind::kSlidingWindow) return s;
  return KeepsBits(
      *plan, c, "other K and V before the window of these rows",
      [&](oracle::Inputs& inputs) { return change(inputs, false); },
      [&](const Row& row, const Sequence& s) {
        return row.row >= cut(s.q_len) && sees_some(row, s);
      });
}

// If one key is NaN, O and LSE of the rows that see it are NaN.
absl::Status NanReachesRowsThatSeeIt(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<oracle::Trial> trial = oracle::Trial::Make(*plan, c.inputs, c.with_lse);
  if (!trial.ok()) return NotDeclined(trial.status());
  const auto key_of = [&c](int64_t kv_len) {
    return static_cast<int64_t>(c.inputs.seed / 3 %
                                static_cast<uint64_t>(std::max<int64_t>(kv_len, 1)));
  };
  for (int64_t i = 0; i < c.problem.b; ++i) {
    const int64_t key = key_of(trial->inputs().kv_lens()[i]);
    absl::Status s = trial->inputs().ChangeKv(i, key, key + 1, oracle::Inputs::Fill::kNan);
    if (!s.ok()) return NotDeclined(s);
  }
  absl::StatusOr<oracle::Trial::Run> run = trial->RunOnce();
  if (!run.ok()) return NotDeclined(run.status());
  const AttentionTensors& t = trial->inputs().host_tensors();
  const std::vector<Row> rows = oracle::AllRows(c.problem, t);
  const Result values = oracle::ValuesOf(c.problem, t, run->outputs, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sequence s = SequenceOf(c.problem, t, rows[i].sequence);
    const int64_t key = key_of(s.kv_len);
    const KvRange seen = VisibleKv(c.problem.mask, rows[i].row, s.q_len, s.kv_len);
    if (key < seen.begin || key >= seen.end) continue;
    bool nan = values.lse.empty() || std::isnan(values.lse[i]);
    for (int64_t j = 0; j < c.problem.dv; ++j) nan = nan && std::isnan(values.O(i, j));
    if (nan) continue;
    return absl::InternalError(absl::StrCat("NaN in key ", key, " of sequence ", rows[i].sequence,
                                            " is lost in head ", rows[i].head, ", row ",
                                            rows[i].row, ", which sees it"));
  }
  return absl::OkStatus();
}

absl::Status SequencesAreIndependent(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  // Checks both neighbours of a sequence in the middle, or one neighbour of a sequence at an end.
  const int64_t victim = static_cast<int64_t>(c.inputs.seed / 7 % c.problem.b);
  return KeepsBits(
      *plan, c, absl::StrCat("NaN in sequence ", victim),
      [&](oracle::Inputs& inputs) {
        absl::Status s = inputs.ChangeQ(victim, 0, c.problem.sq, oracle::Inputs::Fill::kNan);
        return s.ok() ? inputs.ChangeKv(victim, 0, c.problem.skv, oracle::Inputs::Fill::kNan) : s;
      },
      [&](const Row& row, const Sequence&) { return row.sequence != victim; });
}

absl::Status LseIsOptional(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<oracle::Trial> with = oracle::Trial::Make(*plan, c.inputs, true);
  absl::StatusOr<oracle::Trial> without = oracle::Trial::Make(*plan, c.inputs, false);
  if (!with.ok()) return NotDeclined(with.status());
  if (!without.ok()) return NotDeclined(without.status());
  absl::StatusOr<oracle::Trial::Run> a = with->RunOnce(), b = without->RunOnce();
  if (!a.ok()) return NotDeclined(a.status());
  if (!b.ok()) return NotDeclined(b.status());
  const AttentionTensors& t = with->inputs().host_tensors();
  const std::string difference =
      oracle::BitDifference(c.problem, t, a->outputs, b->outputs, oracle::AllRows(c.problem, t));
  if (difference.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("with and without LSE: ", difference));
}

absl::Status LensModesAgree(const Subject& subject, const Case& fixed) {
  bool ran = false;
  absl::Status declined;
  for (Lengths lens : {Lengths::kPacked, Lengths::kPadded}) {
    Case c = fixed;
    c.problem.lens = lens;
    // The seed gives the same numbers as for the fixed problem, so the oracle's results are equal.
    c.inputs.q_lens.assign(c.problem.b, static_cast<int32_t>(c.problem.sq));
    c.inputs.kv_lens.assign(c.problem.b, static_cast<int32_t>(c.problem.skv));
    if (!oracle::CheckLayout(c.inputs.layout, c.problem).ok())
      c.inputs.layout = oracle::Layout::kBshd;
    absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
    if (plan.status().code() == absl::StatusCode::kUnimplemented) {
      declined = plan.status();
      continue;
    }
    if (!plan.ok()) return plan.status();
    if (absl::Status s = VerifyPlan(*plan, c); !s.ok()) return s;
    ran = true;
  }
  return ran ? absl::OkStatus() : declined;
}

// "tile_q: rows of a query tile" -> "tile_q".
std::string KeyOf(const std::string& documented) {
  return documented.substr(0, documented.find(':'));
}

// Configurations to try besides the default: the kernel's examples, and small numbers for each key
// (tile sizes, among other things).
absl::StatusOr<std::vector<LaunchConfig>> ConfigsOf(const Kernel& kernel) {
  std::vector<LaunchConfig> configs;
  for (const std::string& line : kernel.traits().config_examples) {
    absl::StatusOr<LaunchConfig> config = LaunchConfig::Parse(line);
    if (!config.ok()) return config.status();
    configs.push_back(*std::move(config));
  }
  for (const std::string& documented : kernel.traits().config_keys) {
    for (const char* value : {"1", "2", "3", "16", "32", "64", "128", "256"}) {
      configs.emplace_back().Set(KeyOf(documented), value);
    }
  }
  return configs;
}

absl::Status RejectsNonsense(const Subject& subject, const AttentionProblem& p) {
  std::vector<std::pair<std::string, std::string>> nonsense = {{"no_such_key", "1"}};
  for (const std::string& documented : subject.kernel->traits().config_keys) {
    nonsense.push_back({KeyOf(documented), "no such value"});
  }
  for (const auto& [key, value] : nonsense) {
    LaunchConfig config;
    config.Set(key, value);
    const absl::Status s = PlanFor(subject, p, config).status();
    if (s.code() == absl::StatusCode::kInvalidArgument) continue;
    return absl::InternalError(absl::StrCat("config \"", config.ToString(),
                                            "\" is not InvalidArgument but ", s.ToString()));
  }
  return absl::OkStatus();
}

absl::Status ConfigOverrides(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  if (absl::Status s = RejectsNonsense(subject, c.problem); !s.ok()) return s;
  const absl::StatusOr<std::vector<LaunchConfig>> configs = ConfigsOf(*subject.kernel);
  if (!configs.ok()) return NotDeclined(configs.status());
  // Tools that watch memory make a kernel a hundred times slower, and then others wait for the GPU.
  const size_t most = !c.every_config ? 1 : oracle::BareMemory() ? 2 : configs->size();
  const int first = c.every_config ? 2 * c.number : c.number / 4;
  for (size_t i = 0, ran = 0; i < configs->size() && ran < most; ++i) {
    plan = PlanFor(subject, c.problem, (*configs)[(first + i) % configs->size()]);
    // The problem or the device may rule out a configuration.
    if (!plan.ok()) continue;
    if (absl::Status s = VerifyPlan(*plan, c); !s.ok()) return s;
    ++ran;
  }
  return absl::OkStatus();
}

absl::Status TrafficModel(const Subject& subject, const Case& c) {
  absl::StatusOr<Plan> plan = PlanFor(subject, c.problem);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<Traffic> model =
      subject.kernel->ExpectedTraffic(c.problem, plan->device, plan->config);
  if (!model.ok()) return NotDeclined(model.status());
  const Traffic least = CompulsoryTraffic(c.problem);
  if (model->flops < least.flops * (1 - 1e-9)) {
    return absl::InternalError(
        absl::StrCat("ExpectedTraffic: ", model->flops, " FLOPs are less than ", least.flops));
  }
  if (model->bytes_written < least.bytes_written || model->bytes_read < 0) {
    return absl::InternalError(absl::StrCat("ExpectedTraffic: ", model->bytes_read, " bytes read, ",
                                            model->bytes_written, " written; at least 0 and ",
                                            least.bytes_written, " are needed"));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<Check>& Checks() {
  static const std::vector<Check>* const kChecks = new std::vector<Check>{
      {"matches_oracle", Always, 1, MatchesOracle, Where::kAnywhere, /*watched=*/true},
      {"zero_q_gives_mean_of_v", Always, 4, ZeroQGivesMeanOfV},
      {"constant_v_gives_v", Always, 4, ConstantVGivesV},
      {"hidden_keys_have_no_influence", Masked, 1, HiddenKeysHaveNoInfluence},
      {"nan_reaches_rows_that_see_it", Always, 4, NanReachesRowsThatSeeIt},
      {"sequences_are_independent", Batched, 1, SequencesAreIndependent},
      {"lse_is_optional", Always, 4, LseIsOptional, Where::kAnywhere, /*watched=*/true},
      {"lens_modes_agree", Fixed, 2, LensModesAgree},
      {"config_overrides", WithConfigs, 1, ConfigOverrides, Where::kAnywhere, /*watched=*/true},
      {"traffic_model", Always, 1, TrafficModel},
      {"gives_its_scores", Always, 2, GivesItsScores, Where::kWithIntermediates, /*watched=*/true},
      {"can_be_captured", Always, 2, CanBeCaptured, Where::kOnGpu},
      {"allocates_nothing", Always, 4, AllocatesNothing, Where::kOnGpu, /*watched=*/true},
      {"runs_on_the_callers_stream", Always, 8, RunsOnTheCallersStream, Where::kOnGpu},
  };
  return *kChecks;
}

bool AppliesTo(const Check& check, const Kernel& kernel) {
  if (oracle::BareMemory() && !check.watched) return false;
  if (check.where == Where::kAnywhere) return true;
  if (check.where == Where::kWithIntermediates) return kernel.traits().gives_intermediates;
  return kernel.traits().device == DeviceKind::kCuda;
}

std::vector<size_t> CasesOf(const Check& check, const std::vector<Case>& cases) {
  std::vector<size_t> chosen;
  int applicable = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (check.applies(cases[i]) && applicable++ % check.stride == 0) chosen.push_back(i);
  }
  return chosen;
}

int CountSupported(const Subject& subject, const std::vector<Case>& cases) {
  return static_cast<int>(std::count_if(
      cases.begin(), cases.end(), [&](const Case& c) { return PlanFor(subject, c.problem).ok(); }));
}

}  // namespace attnlab::conformance
