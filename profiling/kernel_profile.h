// Measures what kernels do on a GPU: counters, times and facts of one call each, beside the
// kernel's own model.
//
//   std::vector<Plan> plans = …;  // one problem and one GPU; several kernels or configurations
//   absl::StatusOr<std::vector<KernelProfile>> profiles = ProfileKernels(plans, {});
//   double read = *(*profiles)[0].Counted("hbm_bytes_read");
//
// L2 is empty before every measured call. The figures are thus repeatable, and are those of a
// kernel that runs after another one.
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
  std::string set = "traffic";       // a set of quantities; "" for none
  std::vector<std::string> metrics;  // CUPTI metrics by name, in addition to the set
  int64_t repetitions = 3;           // medians are taken over these
  // Called with what is being done, for a progress bar.
  std::function<void(absl::string_view)> progress;
  // Called between kernels: returns true when it is time to stop.
  std::function<bool()> stopped;
};

struct KernelProfile {
  Plan plan;
  // Not OK if the kernel failed, or if it was time to stop (Cancelled). Nothing below was measured
  // then.
  absl::Status status;

  Traffic compulsory;  // what any kernel must do with these inputs
  Traffic expected;    // what this kernel's model says

  // Medians, the set first; empty for a call that launches nothing. Times among them are at the
  // clock that the GPU runs at while counting.
  std::vector<Value> counted;
  std::optional<double> Counted(absl::string_view name) const;

  // From the beginning of the call's first kernel to the end of its last, without counters: the
  // median in seconds, and the timeline of the call nearest to it.
  double seconds = 0;
  std::vector<Activity> timeline;
  std::vector<LaunchFacts> launches;

  // How often the kernel ran for counters, and the seconds that counting took beyond those runs.
  int64_t counted_calls = 0;
  double overhead_seconds = 0;

  double TflopPerSecond() const { return compulsory.flops / seconds * 1e-12; }
};

// One profile per plan, in order. An error means that nothing could be measured: errors of
// Counters::Open(), of inputs and of memory; InvalidArgument for plans of several problems or
// devices; Unimplemented for CPU plans.
absl::StatusOr<std::vector<KernelProfile>> ProfileKernels(absl::Span<const Plan> plans,
                                                          const ProfileOptions& options);

}  // namespace attnlab::profiling

#endif  // PROFILING_KERNEL_PROFILE_H_
