// Tries candidates of the tuner in processes of their own, by `attnlab verify` and `attnlab bench`:
// a candidate that crashes, hangs or breaks the GPU's context takes nothing with it, and figures do
// not depend on what this process did before.
#ifndef TOOLS_COMMAND_PROCESS_TRIALS_H_
#define TOOLS_COMMAND_PROCESS_TRIALS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/tune/trials.h"
#include "tools/lib/json.h"

namespace attnlab::command {

class ProcessTrials : public tune::Trials {
 public:
  // `program`: the attnlab command.
  explicit ProcessTrials(std::string program) : program_(std::move(program)) {}

  absl::Status Check(const Plan& plan) override;
  absl::StatusOr<std::vector<tune::Timed>> Time(absl::Span<const Plan> plans, double seconds,
                                                double max_noise) override;

 private:
  // The rows that the subcommand prints for these plans. Aborted if it crashed or was killed.
  absl::StatusOr<std::vector<Json>> Rows(const std::string& subcommand,
                                         absl::Span<const Plan> plans,
                                         const std::vector<std::string>& flags,
                                         double timeout_seconds) const;
  absl::StatusOr<std::vector<tune::Timed>> TimeTogether(absl::Span<const Plan> plans,
                                                        double seconds, double max_noise) const;

  const std::string program_;
};

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_PROCESS_TRIALS_H_
