#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "attention/conformance/launched_code.h"

namespace attnlab::conformance {

std::string LaunchFault(const LaunchFacts& facts, const CapabilityLimits& limits) {
  const int wanted = limits.compute_capability;
  if (facts.code_capability != wanted) {
    return absl::StrCat(facts.function, ": code for ", CapabilityName(facts.code_capability),
                        ", not for ", CapabilityName(wanted));
  }
  // On a later GPU, the driver must have compiled the PTX for it.
  const bool fits = facts.gpu_capability > wanted ? facts.binary_capability > wanted
                                                  : facts.binary_capability == wanted;
  if (!fits) {
    return absl::StrCat(facts.function, ": machine code for ",
                        CapabilityName(facts.binary_capability), " from code for ",
                        CapabilityName(wanted), " on a GPU of ",
                        CapabilityName(facts.gpu_capability));
  }
  if (facts.shared_bytes > limits.shared_memory_per_block) {
    return absl::StrCat(facts.function, ": ", facts.shared_bytes,
                        " bytes of shared memory per block, but ", CapabilityName(wanted), " has ",
                        limits.shared_memory_per_block);
  }
  if (facts.threads > limits.threads_per_block) {
    return absl::StrCat(facts.function, ": ", facts.threads, " threads per block, but ",
                        CapabilityName(wanted), " has ", limits.threads_per_block);
  }
  return "";
}

absl::Status WatchLaunchesByEnvironment() {
  const char* const value = std::getenv("ATTNLAB_COMPUTE_CAPABILITY");
  if (value == nullptr || *value == '\0') return absl::OkStatus();
  int capability = 0;
  if (!absl::SimpleAtoi(value, &capability)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ATTNLAB_COMPUTE_CAPABILITY: \"", value, "\" is not a number"));
  }
  return WatchLaunches(capability);
}

}  // namespace attnlab::conformance
