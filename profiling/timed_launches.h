// The time of a launch on the default stream of the current GPU.
#ifndef PROFILING_TIMED_LAUNCHES_H_
#define PROFILING_TIMED_LAUNCHES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::profiling {

// The median of so many, each between two events, after one that is not timed. Waits. Errors are
// those of `launch`, and what the GPU says of it.
absl::StatusOr<double> MedianSeconds(int repetitions, absl::FunctionRef<absl::Status()> launch);

}  // namespace attnlab::profiling

#endif  // PROFILING_TIMED_LAUNCHES_H_
