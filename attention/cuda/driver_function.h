// Functions of the CUDA driver, looked up through the runtime. Programs therefore do not link
// against the driver, and start on machines without one.
//
//   const auto get_name = DriverFunction<decltype(&cuFuncGetName)>("cuFuncGetName", 12030);
//   if (!get_name.ok()) return get_name.status();
//   absl::Status s = DriverStatus((*get_name)(&name, function), "cuFuncGetName");
#ifndef ATTENTION_CUDA_DRIVER_FUNCTION_H_
#define ATTENTION_CUDA_DRIVER_FUNCTION_H_

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::cuda_backend {

// `version`: the CUDA version whose function it is; 12030 for 12.3. Unimplemented if the driver
// does not have it.
absl::StatusOr<void*> FindDriverFunction(const char* name, unsigned version);

template <typename Function>
absl::StatusOr<Function> DriverFunction(const char* name, unsigned version) {
  const absl::StatusOr<void*> found = FindDriverFunction(name, version);
  if (!found.ok()) return found.status();
  return reinterpret_cast<Function>(*found);
}

// OK, or Internal with "what: CUDA_ERROR_…".
absl::Status DriverStatus(CUresult result, const char* what);

}  // namespace attnlab::cuda_backend

#endif  // ATTENTION_CUDA_DRIVER_FUNCTION_H_
