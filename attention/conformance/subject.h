// A kernel under test, and where it runs.
#ifndef ATTENTION_CONFORMANCE_SUBJECT_H_
#define ATTENTION_CONFORMANCE_SUBJECT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"

namespace attnlab::conformance {

struct Subject {
  const Kernel* kernel = nullptr;
  Device device;
};

// The kernel on the first device of this machine that it is built for. Unavailable, with the
// reason, if there is none; InvalidArgument for a wrong $ATTNLAB_COMPUTE_CAPABILITY.
absl::StatusOr<Subject> SubjectFor(const Kernel& kernel);

// MakePlan() of the kernel, which need not be registered. Unimplemented means that it declines the
// problem, and nothing else.
absl::StatusOr<Plan> PlanFor(const Subject& subject, const AttentionProblem& problem,
                             const LaunchConfig& config = {});

// Replaces Unimplemented by Internal: only PlanFor() may say that a kernel declines.
absl::Status NotDeclined(const absl::Status& s);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_SUBJECT_H_
