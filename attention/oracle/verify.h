// Checks a kernel on one problem: generated inputs, poisoned and fenced outputs and workspace, the
// oracle, the tolerance.
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
  // How often to run again, with other contents of the workspace, and compare the bits.
  int64_t reruns = 1;
  // If the oracle would need more FLOPs than this, only a sample of the rows is checked: first and
  // last rows of sequences, and others drawn from the seed. (It is always checked in full that all
  // rows in use, and nothing else, are written.)
  double oracle_flops = 1e9;
};

struct VerifyResult {
  bool passed = false;
  // What is wrong, one line each, and the command that reproduces it; empty if passed.
  std::string message;
  TensorError o;     // over the rows checked
  TensorError lse;   // over the rows checked; all zero unless with_lse
  int64_t rows = 0;  // in use, over all sequences and heads
  int64_t rows_checked = 0;
};

// Verifies the plan. An error status means that nothing was verified: making the inputs or the
// kernel's Forward() failed. It has the kernel's name and the problem.
absl::StatusOr<VerifyResult> Verify(const Plan& plan, const VerifyOptions& options = {});

// What a call is judged by: the rows to check and their expected values.
struct Expected {
  std::vector<Row> rows;
  Oracle oracle;
};

// `host` are the inputs on the host, `there` the same on the plan's device (on the CPU: the same
// memory). Checks all rows, or a sample as VerifyOptions says. Call it before the kernel runs,
// because a wrong kernel could change its inputs.
absl::StatusOr<Expected> ExpectedOf(const Plan& plan, const AttentionTensors& host,
                                    const AttentionTensors& there, double oracle_flops,
                                    uint64_t seed);

// The errors of the call's outputs. LSE is compared if its data is not null.
Errors ErrorsOf(const Plan& plan, const AttentionTensors& host, const Expected& expected,
                const HostOutputs& outputs);

// Rows in use, over all sequences and heads.
int64_t RowsInUse(const AttentionProblem& problem, const AttentionTensors& host);

// What a plan's results for these inputs are judged by. For a plan on a GPU it is computed there.
// It is computed on the CPU instead if the GPU has too little memory left, or if a tool watches the
// program (bare_memory.h) and would slow the GPU down.
absl::StatusOr<Oracle> OracleOf(const Plan& plan, const AttentionTensors& host,
                                const AttentionTensors& there, absl::Span<const Row> rows);

// The command that repeats the check:
// "attnlab verify --kernel=cpu --problem=b=1,… --seed=7 --layout=odd".
std::string ReproduceCommand(const Plan& plan, const VerifyOptions& options);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_VERIFY_H_
