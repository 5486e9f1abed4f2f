// Checks a kernel on one problem: generated inputs, poisoned and fenced outputs and workspace,
// the oracle, the tolerance.
//
//   absl::StatusOr<Plan> plan = MakePlan(problem, Device::Cpu(), "cpu");
//   VerifyOptions options;
//   options.inputs.seed = 7;
//   absl::StatusOr<VerifyResult> result = Verify(*plan, options);
//   if (result.ok() && !result->passed) std::cerr << result->message;
#ifndef ATTENTION_ORACLE_VERIFY_H_
#define ATTENTION_ORACLE_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/core/tensors.h"
#include "attention/oracle/buffers.h"
#include "attention/oracle/inputs.h"
#include "attention/oracle/reference.h"
#include "attention/oracle/tolerance.h"

namespace attnlab::oracle {

struct VerifyOptions {
  InputOptions inputs;
  bool with_lse = true;
  // Run twice, with another workspace content, and compare the bits.
  bool rerun = true;
  // Where the oracle would need more arithmetic than this, a sample of the rows is checked: the
  // first and last rows of sequences, and others from the seed. (That all rows in use are
  // written, and nothing else, is always checked in full.)
  double oracle_flops = 1e9;
};

struct VerifyResult {
  bool passed = false;
  // What is wrong, one line each, and the command that shows it again; empty if passed.
  std::string message;
  TensorError o;     // largest error and bound over the rows checked
  TensorError lse;   // all zero unless with_lse
  int64_t rows = 0;  // in use, over all sequences and heads
  int64_t rows_checked = 0;
};

// An error status is one of making the inputs or of the kernel's Forward(), with the kernel's
// name and the problem: then nothing was verified.
absl::StatusOr<VerifyResult> Verify(const Plan& plan, const VerifyOptions& options = {});

// What a call is judged by: some of its rows, and what they should be.
struct Expected {
  std::vector<Row> rows;
  Oracle oracle;
};

// For inputs that the caller has on the host, and in `there` on the plan's device (the same on the
// CPU). Rows are all, or a sample as VerifyOptions says. Computed before the kernel runs, which
// could change what it only reads.
absl::StatusOr<Expected> ExpectedOf(const Plan& plan, const AttentionTensors& host,
                                    const AttentionTensors& there, double oracle_flops,
                                    uint64_t seed);

// The errors of the call's outputs. LSE is compared if its data is not null.
Errors ErrorsOf(const Plan& plan, const AttentionTensors& host, const Expected& expected,
                const HostOutputs& outputs);

// Rows in use, over all sequences and heads.
int64_t RowsInUse(const AttentionProblem& problem, const AttentionTensors& host);

// What a plan's results for these inputs are judged by: of a plan on a GPU computed there, unless a
// tool watches the program (bare_memory.h), which would take long.
absl::StatusOr<Oracle> OracleOf(const Plan& plan, const AttentionTensors& host,
                                const AttentionTensors& there, absl::Span<const Row> rows);

// The command that verifies the same again:
// "attnlab verify --kernel=cpu --problem=b=1,… --seed=7 --layout=odd".
std::string ReproduceCommand(const Plan& plan, const VerifyOptions& options);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_VERIFY_H_
