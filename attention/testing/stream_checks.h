// Checks of when and where a kernel of a GPU works; conformance.h says what they check.
#ifndef ATTENTION_TESTING_STREAM_CHECKS_H_
#define ATTENTION_TESTING_STREAM_CHECKS_H_

#include "absl/status/status.h"
#include "attention/testing/problems.h"
#include "attention/testing/subject.h"

namespace attnlab::testing {

absl::Status CanBeCaptured(const Subject& subject, const Case& c);
absl::Status AllocatesNothing(const Subject& subject, const Case& c);
absl::Status RunsOnTheCallersStream(const Subject& subject, const Case& c);

}  // namespace attnlab::testing

#endif  // ATTENTION_TESTING_STREAM_CHECKS_H_
