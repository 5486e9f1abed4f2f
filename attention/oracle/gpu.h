// The oracle on a GPU. It computes Exact() and Straightforward() of reference.h in milliseconds,
// where a CPU takes seconds. Tests of GPU kernels and `attnlab verify` use it; oracle_gpu_test
// compares it with the CPU's.
//
// Exact: in double; sums are taken in another order than on the CPU. Straightforward: every sum is
// in order, and no multiply-add is fused. exp, log and tanh are computed in double and rounded to
// fp32, which is within half a unit, as is glibc's expf; so nearly all bits equal the CPU's.
#ifndef ATTENTION_ORACLE_GPU_H_
#define ATTENTION_ORACLE_GPU_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/oracle/reference.h"

namespace attnlab::oracle {

// `there` has the q, k, v and page table of `host` in GPU memory, with the same strides. Lengths are
// read from `host`. Errors as for Exact(), and those of the GPU; Unimplemented in a build without CUDA.
absl::StatusOr<Oracle> OracleOnGpu(const AttentionProblem& problem, const AttentionTensors& host,
                                   const AttentionTensors& there, absl::Span<const Row> rows,
                                   Factors factors = Factors::kAsTheyAre);

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_GPU_H_
