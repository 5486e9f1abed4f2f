// A build without a CUDA toolkit: nothing is ever launched.
#include "attention/conformance/launched_code.h"

namespace attnlab::conformance {

absl::Status WatchLaunches(int compute_capability) { return LimitsOf(compute_capability).status(); }
LaunchReport TakeLaunchReport() { return {}; }

}  // namespace attnlab::conformance
