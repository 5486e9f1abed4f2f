// Checks of when and on which stream a GPU kernel works; see conformance.h.
#ifndef ATTENTION_CONFORMANCE_STREAM_CHECKS_H_
#define ATTENTION_CONFORMANCE_STREAM_CHECKS_H_

#include "absl/status/status.h"
#include "attention/conformance/problems.h"
#include "attention/conformance/subject.h"

namespace attnlab::conformance {

absl::Status CanBeCaptured(const Subject& subject, const Case& c);
absl::Status AllocatesNothing(const Subject& subject, const Case& c);
absl::Status RunsOnTheCallersStream(const Subject& subject, const Case& c);

}  // namespace attnlab::conformance

#endif  // ATTENTION_CONFORMANCE_STREAM_CHECKS_H_
