// Functions of the CUDA driver, asked of the runtime: so that nothing is linked that the driver
// brings, and programs start where there is none.
//
//   const auto get_name = DriverFunction<decltype(&cuFuncGetName)>("cuFuncGetName", 12030);
//   if (!get_name.ok()) return get_name.status();
//   absl::Status s = DriverStatus((*get_name)(&name, function), "cuFuncGetName");
#ifndef PROFILING_DRIVER_FUNCTION_H_
#define PROFILING_DRIVER_FUNCTION_H_

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::profiling {

// As of this version of CUDA, 12030 for 12.3. Unimplemented where the driver has it not.
absl::StatusOr<void*> FindDriverFunction(const char* name, unsigned version);

template <typename Function>
absl::StatusOr<Function> DriverFunction(const char* name, unsigned version) {
  const absl::StatusOr<void*> found = FindDriverFunction(name, version);
  if (!found.ok()) return found.status();
  return reinterpret_cast<Function>(*found);
}

// OK, or "what: CUDA_ERROR_…", as Internal.
absl::Status DriverStatus(CUresult result, const char* what);

}  // namespace attnlab::profiling

#endif  // PROFILING_DRIVER_FUNCTION_H_
