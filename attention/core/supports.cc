#include "attention/core/supports.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"

namespace attnlab {

absl::Status CheckDtypeAndPage(const AttentionProblem& problem,
                               std::initializer_list<KvForm> takes) {
  const auto taken = [takes](KvForm form) {
    return std::find(takes.begin(), takes.end(), form) != takes.end();
  };
  const bool fp8_q = problem.dtype == DType::kFloat8E4M3;
  if (fp8_q && !taken(KvForm::kFp8Q)) {
    return absl::UnimplementedError("dtype: fp8_e4m3 is not one of fp32, fp16, bf16");
  }
  const bool fp8 = problem.KvDType() == DType::kFloat8E4M3 && taken(KvForm::kFp8);
  if (problem.KvDType() != problem.dtype && !fp8) {
    return absl::UnimplementedError(
        absl::StrCat("kvdtype: ", Name(problem.KvDType()),
                     " is not supported with dtype=", Name(problem.dtype)));
  }
  if (problem.VDType() != problem.KvDType() && !taken(KvForm::kE5m2V)) {
    return absl::UnimplementedError(absl::StrCat(
        "vdtype: ", Name(problem.VDType()), " is not supported with dtype=", Name(problem.dtype)));
  }
  if (problem.page != 0 && !taken(KvForm::kPaged)) {
    return absl::UnimplementedError(
        absl::StrCat("page: ", problem.page, "; paged K and V are not supported, only page = 0"));
  }
  return absl::OkStatus();
}

int64_t MostKeys(const AttentionProblem& problem) {
  if (problem.mask.kind != Mask::Kind::kSlidingWindow) return problem.skv;
  return std::min(problem.skv, problem.mask.left + 1 + problem.mask.right);
}

absl::Status CheckTensorCoreKeys(const AttentionProblem& problem, int code_capability) {
  int64_t most = kMostBf16Keys;
  if (problem.dtype == DType::kFloat16) {
    most = code_capability < 80 ? kMostFp16Keys / 2 : kMostFp16Keys;
  }
  const int64_t seen = MostKeys(problem);
  if (seen <= most) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "skv: a row sees ", seen, " keys, above ", most, ", the most for ", Name(problem.dtype),
      " on tensor cores (they truncate sums instead of rounding)"));
}

}  // namespace attnlab
