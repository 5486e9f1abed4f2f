// A kernel and the data of one problem, ready to run as often as a test wants.
#ifndef ATTENTION_ORACLE_TRIAL_H_
#define ATTENTION_ORACLE_TRIAL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/oracle/buffers.h"
#include "attention/oracle/inputs.h"

namespace attnlab::oracle {

class Trial {
 public:
  // Generates the inputs on the plan's device, and allocates outputs and workspace.
  static absl::StatusOr<Trial> Make(const Plan& plan, const InputOptions& options, bool with_lse);

  struct Run {
    HostOutputs outputs;
    std::string faults;  // in what was written, one line each; see WriteFaults()
  };

  // Poisons outputs and workspace, runs, and waits. An error is the kernel's. With bare memory
  // (bare_memory.h) outputs and workspace are allocated again and left uninitialised.
  absl::StatusOr<Run> RunOnce(uint16_t workspace_content = kPoison);

  // The steps of RunOnce(), for checks of when and on which stream a kernel works.
  absl::Status Prepare(uint16_t workspace_content = kPoison);
  // Enqueues the run on the stream (a cudaStream_t; nullptr: the default one). Does not wait.
  absl::Status Start(void* stream, const Intermediates& intermediates = {});
  // Call it once the work is done.
  absl::StatusOr<Run> Finish() const;

  // "", or the first of o, lse and workspace that differs from what Prepare() left there. Useless
  // with bare memory, whose content is unknown.
  absl::StatusOr<std::string> WrittenTo() const;

  const Plan& plan() const { return plan_; }
  Inputs& inputs() { return inputs_; }

 private:
  Trial(Plan plan, Inputs inputs, Outputs outputs, FencedBuffer workspace);
  absl::Status OfKernel(const absl::Status& s) const;  // adds kernel and problem to the message

  Plan plan_;
  Inputs inputs_;
  Outputs outputs_;
  FencedBuffer workspace_;
};

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_TRIAL_H_
