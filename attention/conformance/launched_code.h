// Proof that a test of a compute capability ran the code of that capability.
//
// A test target of one capability (//ci:gpu_test.bzl) holds device code for it alone, which may run
// on a later GPU, by way of PTX. What is left to show is that nothing else was launched, and
// nothing that a GPU of that capability could not launch:
//
//   WatchLaunches(75);
//   …                                             // every device::Launch() of the process is seen
//   LaunchReport report = TakeLaunchReport();     // faults: "softmax: code for 9.0, not 7.5"
//
// Launches by other ways (<<<>>>, cuBLAS's own) are not seen. A GoogleTest program that links
// :launched_code_hook need call nothing: with $ATTNLAB_COMPUTE_CAPABILITY set it fails for each
// fault.
#ifndef ATTENTION_CONFORMANCE_LAUNCHED_CODE_H_
#define ATTENTION_CONFORMANCE_LAUNCHED_CODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/compute_capability.h"

namespace attnlab::conformance {

// What the runtime says of a function and of one launch of it.
struct LaunchFacts {
  std::string function;
  int code_capability = 0;    // that its PTX, or its machine code, was made for: 75
  int binary_capability = 0;  // of the machine code that runs
  int gpu_capability = 0;
  int64_t shared_bytes = 0;  // static and dynamic, of a block
  int64_t threads = 0;       // of a block
};

// What is wrong with it on a GPU with those limits, or "".
std::string LaunchFault(const LaunchFacts& facts, const CapabilityLimits& limits);

// Looks at every launch from now on. InvalidArgument for a capability that attnlab does not know.
absl::Status WatchLaunches(int compute_capability);

// Watches for $ATTNLAB_COMPUTE_CAPABILITY; does nothing where it is not set. InvalidArgument for
// what it cannot be.
absl::Status WatchLaunchesByEnvironment();

struct LaunchReport {
  int64_t launches = 0;  // since the last report
  // Since then, each once in the life of the process.
  std::vector<std::string> faults;
};
LaunchReport TakeLaunchReport();

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_LAUNCHED_CODE_H_
