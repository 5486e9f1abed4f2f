#include "attention/core/supports.h"

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"

namespace attnlab {

absl::Status CheckDtypeAndPage(const AttentionProblem& problem) {
  if (problem.dtype == DType::kFloat8E4M3) {
    return absl::UnimplementedError("dtype: fp8_e4m3 is not one of fp32, fp16, bf16");
  }
  if (problem.KvDType() != problem.dtype) {
    return absl::UnimplementedError(
        absl::StrCat("kvdtype: ", Name(problem.KvDType()),
                     " is not supported with dtype=", Name(problem.dtype)));
  }
  if (problem.ODType() != problem.dtype) {
    return absl::UnimplementedError(absl::StrCat(
        "odtype: ", Name(problem.ODType()), " is not supported with dtype=", Name(problem.dtype)));
  }
  if (problem.page != 0) {
    return absl::UnimplementedError(
        absl::StrCat("page: ", problem.page, "; paged K and V are not supported, only page = 0"));
  }
  return absl::OkStatus();
}

}  // namespace attnlab
