// A build without a CUDA toolkit.
#include "absl/status/status.h"
#include "attention/oracle/gpu.h"

namespace attnlab::oracle {

absl::StatusOr<Oracle> OracleOnGpu(const AttentionProblem&, const AttentionTensors&,
                                   const AttentionTensors&, absl::Span<const Row>, Factors) {
  return absl::UnimplementedError("oracle: this program was built without a CUDA toolkit");
}

}  // namespace attnlab::oracle
