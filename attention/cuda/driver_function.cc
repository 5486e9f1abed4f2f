#include "attention/cuda/driver_function.h"

#include "absl/strings/str_cat.h"
#include "attention/cuda/call.h"
#include "cuda_runtime_api.h"

namespace attnlab::cuda_backend {

absl::StatusOr<void*> FindDriverFunction(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const absl::Status s = ToStatus(
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found), name);
  if (!s.ok()) return s;
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    return absl::UnimplementedError(absl::StrCat("the driver has no ", name, " as of CUDA ",
                                                 version / 1000, ".", version % 1000 / 10));
  }
  return function;
}

absl::Status DriverStatus(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const auto name = DriverFunction<decltype(&cuGetErrorName)>("cuGetErrorName", 6000);
  const char* text = nullptr;
  if (name.ok() && (*name)(result, &text) == CUDA_SUCCESS && text != nullptr) {
    return absl::InternalError(absl::StrCat(what, ": ", text));
  }
  return absl::InternalError(absl::StrCat(what, ": error ", static_cast<int>(result)));
}

}  // namespace attnlab::cuda_backend
