// When the work that a call enqueues begins and ends on the GPU, from CUPTI's activity records.
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
#include "absl/types/span.h"

namespace attnlab::profiling {

struct Activity {
  enum class Kind { kKernel, kFill, kCopy };
  Kind kind = Kind::kKernel;
  std::string name;    // of a kernel, demangled, in full; or "memset", "memcpy",
                       // "memcpy from GPU 1"
  double begin = 0;    // seconds since the first activity began
  double seconds = 0;  // duration
  uint32_t gpu = 0;    // where it runs; of a copy between GPUs, the one that receives
  uint32_t stream = 0;
};

// Seconds from the beginning of the first activity to the end of the last; 0 if there is none.
double SpanOf(const std::vector<Activity>& timeline);

// Sorts activities, given with the nanosecond at which each began, drops the first `before`, and
// makes the times relative to the first one left. Internal if there are fewer than `before`.
absl::StatusOr<std::vector<Activity>> TimelineFrom(std::vector<std::pair<uint64_t, Activity>> began,
                                                   size_t before);

// The activities of what `enqueue` puts into its stream, sorted by time. Waits for the GPU before
// and after. Drops the first `before` activities. Those keep the GPU busy while the rest is
// launched, so that launch overhead does not appear as gaps. Errors are those of `enqueue`, of
// LoadCupti() and of CUPTI: Unavailable where another tool traces the process. Includes whatever
// else the process runs on the GPU meanwhile. One call at a time.
absl::StatusOr<std::vector<Activity>> TimelineOf(
    int ordinal, absl::FunctionRef<absl::Status(void* stream)> enqueue, size_t before = 0);

// The same of a call that uses several GPUs, on streams of its own.
absl::StatusOr<std::vector<Activity>> TimelineOfGpus(absl::Span<const int> ordinals,
                                                     absl::FunctionRef<absl::Status()> call);

}  // namespace attnlab::profiling

#endif  // PROFILING_TIMELINE_H_
