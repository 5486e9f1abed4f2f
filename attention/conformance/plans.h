// Plans of all GPU kernels that a program links, for tests that know no kernel by name.
#ifndef ATTENTION_CONFORMANCE_PLANS_H_
#define ATTENTION_CONFORMANCE_PLANS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"

namespace attnlab::conformance {

// On the first GPU, by each kernel that does the problem there, but for those that are for
// checking; and, if asked for, by its variants (KernelTraits). Errors are those of MakePlan(), but
// not that a kernel declines, or wants more memory than there is.
absl::StatusOr<std::vector<Plan>> PlansOfAllKernels(absl::string_view problem,
                                                    bool with_variants = false);

// "fa2 [mma=none]".
std::string NameOf(const Plan& plan);

// Of the kernels that PlansOfAllKernels() asks, and if asked for of their variants, the names of
// those that give it a plan for none of the problems: a test over these never runs them.
absl::StatusOr<std::vector<std::string>> NeverPlanned(const std::vector<std::string>& problems,
                                                      bool with_variants = false);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_PLANS_H_
