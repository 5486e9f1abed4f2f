// Times launches on the default stream of the current GPU.
#ifndef PROFILING_TIMED_LAUNCHES_H_
#define PROFILING_TIMED_LAUNCHES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::profiling {

// Seconds: the median of `repetitions` launches, each between two events, after one untimed launch.
// Waits for the GPU. Errors are those of `launch` and of the GPU.
absl::StatusOr<double> MedianSeconds(int repetitions, absl::FunctionRef<absl::Status()> launch);

}  // namespace attnlab::profiling

#endif  // PROFILING_TIMED_LAUNCHES_H_
