// Proof that a test for a compute capability ran the code of that capability.
//
// A test target for one capability (//ci:gpu_test.bzl) contains device code for that capability
// alone. A later GPU may run it by way of PTX. What remains to be shown is that nothing else was
// launched, and nothing that a GPU of that capability could not launch:
//
//   WatchLaunches(75);
//   …                                             // every device::Launch() of the process is seen
//   LaunchReport report = TakeLaunchReport();     // faults: "softmax: code for 9.0, not 7.5"
//
// It does not see other launches (<<<>>>, cuBLAS's own). A GoogleTest program that links
// :launched_code_hook need not call anything: if $ATTNLAB_COMPUTE_CAPABILITY is set, it fails for
// each fault.
#ifndef ATTENTION_CONFORMANCE_LAUNCHED_CODE_H_
#define ATTENTION_CONFORMANCE_LAUNCHED_CODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/compute_capability.h"

namespace attnlab::conformance {

// What the CUDA runtime says about a function and about one launch of it.
struct LaunchFacts {
  std::string function;
  int code_capability = 0;    // the PTX or machine code was compiled for it: 75
  int binary_capability = 0;  // of the machine code that runs
  int gpu_capability = 0;
  int64_t shared_bytes = 0;  // per block, static and dynamic
  int64_t threads = 0;       // per block
};

// What is wrong with the launch on a GPU with these limits, or "".
std::string LaunchFault(const LaunchFacts& facts, const CapabilityLimits& limits);

// Checks every launch from now on. InvalidArgument for a capability that attnlab does not know.
absl::Status WatchLaunches(int compute_capability);

// Watches for the capability in $ATTNLAB_COMPUTE_CAPABILITY; does nothing if it is not set.
// InvalidArgument if its value is not a known capability.
absl::Status WatchLaunchesByEnvironment();

struct LaunchReport {
  int64_t launches = 0;  // since the last report
  // Since the last report. Each fault is reported once in the life of the process.
  std::vector<std::string> faults;
};
LaunchReport TakeLaunchReport();

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_LAUNCHED_CODE_H_
