// When what a call puts into a stream begins and ends on the GPU, by CUPTI's activity records.
//
//   absl::StatusOr<std::vector<Activity>> timeline = TimelineOf(0, [&](void* stream) {
//     return Forward(plan, tensors, workspace, stream);
//   });
#ifndef PROFILING_TIMELINE_H_
#define PROFILING_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnlab::profiling {

struct Activity {
  enum class Kind { kKernel, kFill, kCopy };
  Kind kind = Kind::kKernel;
  std::string name;    // of a kernel, demangled, whole; "memset", "memcpy"
  double begin = 0;    // seconds since the first of them began
  double seconds = 0;  // that it took
};

// Seconds from the beginning of the first to the end of the last; 0 of none.
double SpanOf(const std::vector<Activity>& timeline);

// In order of time, and from the beginning of the first, of activities and the nanosecond at which
// each began, but without the first `before`. Internal where there are not so many.
absl::StatusOr<std::vector<Activity>> TimelineFrom(std::vector<std::pair<uint64_t, Activity>> began,
                                                   size_t before);

// In order of time. Waits for the GPU before and after; `enqueue` gets a stream of its own. The
// first `before` of the activities are left out: work that keeps the GPU busy while the rest is
// launched, so that the time to launch it is not among the gaps. Errors are those of `enqueue`, of
// LoadCupti(), and of CUPTI: Unavailable where another tool traces the process. Whatever else the
// process runs on the GPU meanwhile is there, too. One call at a time.
absl::StatusOr<std::vector<Activity>> TimelineOf(
    int ordinal, absl::FunctionRef<absl::Status(void* stream)> enqueue, size_t before = 0);

}  // namespace attnlab::profiling

#endif  // PROFILING_TIMELINE_H_
