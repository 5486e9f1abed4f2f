// Plans of all GPU kernels that a program links, for tests that know no kernel by name.
#ifndef ATTENTION_CONFORMANCE_PLANS_H_
#define ATTENTION_CONFORMANCE_PLANS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"

namespace attnlab::conformance {

// Plans for the first GPU, by each kernel that supports the problem there, except kernels that are
// only for checking. `with_variants` adds plans of each kernel's variants (KernelTraits). Errors
// are those of MakePlan(). A kernel that declines, or needs too much memory, is left out instead.
absl::StatusOr<std::vector<Plan>> PlansOfAllKernels(absl::string_view problem,
                                                    bool with_variants = false);

// "fa2 [mma=none]".
std::string NameOf(const Plan& plan);

// The names of those kernels of PlansOfAllKernels(), and of their variants if `with_variants`, that
// have a plan for none of the problems. A test over these problems never runs them.
absl::StatusOr<std::vector<std::string>> NeverPlanned(const std::vector<std::string>& problems,
                                                      bool with_variants = false);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_PLANS_H_
