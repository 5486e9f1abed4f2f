// Fuzzes AttentionProblem::Parse: any line gives a valid problem or an error with a message, and a
// printed problem parses back to itself.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using attnlab::AttentionProblem;
  const absl::string_view line(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
  if (!problem.ok()) {
    if (problem.status().message().empty()) std::abort();
    return 0;
  }
  if (!problem->Validate().ok()) std::abort();
  const absl::StatusOr<AttentionProblem> again = AttentionProblem::Parse(problem->ToString());
  if (!again.ok() || *again != *problem || again->ToString() != problem->ToString()) std::abort();
  const attnlab::Traffic traffic = attnlab::CompulsoryTraffic(*problem, true);
  if (!std::isfinite(traffic.flops) || traffic.flops < 0) std::abort();
  return 0;
}
