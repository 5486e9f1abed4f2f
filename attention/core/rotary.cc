#include "attention/core/rotary.h"

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/tensors.h"

namespace attnlab {

absl::Status ValidateRotary(const AttentionProblem& p, const Rotary& rotary, Device device) {
  const ConstTensorView& table = rotary.table;
  if (table.data == nullptr) return absl::OkStatus();
  const int64_t dim = table.shape[3], positions = table.shape[1];
  if (dim < 2 || dim > p.d || dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary: dim ", dim, " is not even and in [2, ", p.d, "]"));
  }
  if (positions < p.skv) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary: ", positions, " positions, but skv = ", p.skv));
  }
  if (positions == 0) {  // queries without keys have the angles of the first position
    return absl::InvalidArgumentError("rotary: 0 positions, must be at least 1");
  }
  return ValidateView("rotary", table, {1, positions, 1, dim}, DType::kFloat32, device);
}

}  // namespace attnlab
