// A kernel and the data of one problem, ready to run as often as a test wants.
#ifndef ATTENTION_TESTING_TRIAL_H_
#define ATTENTION_TESTING_TRIAL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/testing/buffers.h"
#include "attention/testing/inputs.h"

namespace attnlab::testing {

class Trial {
 public:
  // Generates the inputs on the plan's device, and allocates outputs and workspace.
  static absl::StatusOr<Trial> Make(const Plan& plan, const InputOptions& options, bool with_lse);

  struct Run {
    HostOutputs outputs;
    std::string faults;  // of writing, one line each; see WriteFaults()
  };

  // Poisons outputs and workspace, runs, waits. An error is the kernel's.
  absl::StatusOr<Run> RunOnce(uint16_t workspace_content = kPoison);

  const Plan& plan() const { return plan_; }
  Inputs& inputs() { return inputs_; }

 private:
  Trial(Plan plan, Inputs inputs, Outputs outputs, FencedBuffer workspace);

  Plan plan_;
  Inputs inputs_;
  Outputs outputs_;
  FencedBuffer workspace_;
};

}  // namespace attnlab::testing

#endif  // ATTENTION_TESTING_TRIAL_H_
