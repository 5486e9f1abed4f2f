#include "attention/tune/trials.h"

#include <utility>

#include "attention/bench/compare.h"
#include "attention/oracle/verify.h"

namespace attnlab::tune {

absl::Status TrialsHere::Check(const Plan& plan) {
  const absl::StatusOr<oracle::VerifyResult> result = oracle::Verify(plan);
  if (!result.ok()) return result.status();
  return result->passed ? absl::OkStatus() : absl::DataLossError(result->message);
}

absl::StatusOr<std::vector<Timed>> TrialsHere::Time(absl::Span<const Plan> plans, double seconds,
                                                    double max_noise) {
  bench::Options options;
  options.verify = false;
  options.seconds = seconds;
  options.timeout = 4 * seconds;
  options.max_noise = max_noise;
  options.stopped = stopped_;
  absl::StatusOr<std::vector<bench::Row>> rows = bench::Compare(plans, options);
  if (!rows.ok()) return rows.status();
  std::vector<Timed> timed;
  for (bench::Row& row : *rows) timed.push_back({std::move(row.status), row.timing});
  return timed;
}

}  // namespace attnlab::tune
