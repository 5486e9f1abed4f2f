// What kernels do on a GPU, measured: counters, times and facts of one call each, beside what the
// kernels' own models say.
//
//   std::vector<Plan> plans = …;  // one problem and one GPU; several kernels or configurations
//   absl::StatusOr<std::vector<KernelProfile>> profiles = ProfileKernels(plans, {});
//   double read = *(*profiles)[0].Counted("hbm_bytes_read");
//
// Every call that is measured begins with an empty L2: so that figures are the same each time, and
// are those of a kernel that follows another one.
#ifndef PROFILING_KERNEL_PROFILE_H_
#define PROFILING_KERNEL_PROFILE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/core/problem.h"
#include "profiling/launch_facts.h"
#include "profiling/timeline.h"
#include "profiling/value.h"

namespace attnlab::profiling {

struct ProfileOptions {
  uint64_t seed = 0;
  bool with_lse = false;
  std::string set = "traffic";       // of quantities; "" for none
  std::vector<std::string> metrics;  // CUPTI's, by name, besides the set
  int64_t repetitions = 3;           // of which medians are taken
  // Told what is being done, for a progress bar.
  std::function<void(absl::string_view)> progress;
  // Asked between kernels: from when on it is time to stop.
  std::function<bool()> stopped;
};

struct KernelProfile {
  Plan plan;
  // Not OK where the kernel failed, or was not run since it was time to stop (Cancelled). Then
  // nothing below was measured.
  absl::Status status;

  Traffic compulsory;  // what any kernel must do, with these inputs
  Traffic expected;    // what this one says that it does

  // Medians, the set first; nothing of a call that has nothing to do. A time among them is one at
  // the clock that counters run with.
  std::vector<Value> counted;
  std::optional<double> Counted(absl::string_view name) const;

  // Of a call, from the beginning of its first kernel to the end of its last, with no counter at
  // work: the median, and the call that was nearest to it.
  double seconds = 0;
  std::vector<Activity> timeline;
  std::vector<LaunchFacts> launches;

  // Times the kernel ran for counters, and how long all that took beyond its own runs.
  int64_t counted_calls = 0;
  double overhead_seconds = 0;

  double TflopPerSecond() const { return compulsory.flops / seconds * 1e-12; }
};

// One profile a plan, in order. Errors are those that keep all of them from being measured: of
// Counters::Open(), of inputs and memory; InvalidArgument for plans of several problems or
// devices, Unimplemented for those of the CPU.
absl::StatusOr<std::vector<KernelProfile>> ProfileKernels(absl::Span<const Plan> plans,
                                                          const ProfileOptions& options);

}  // namespace attnlab::profiling

#endif  // PROFILING_KERNEL_PROFILE_H_
