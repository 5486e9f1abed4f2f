// Turns flags into problems, kernels, configurations and devices.
#ifndef TOOLS_COMMAND_SELECTION_H_
#define TOOLS_COMMAND_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "tools/lib/arguments.h"

namespace attnlab::command {

struct ProblemFlags {
  std::vector<std::string> problems;  // one-line forms with ranges and lists (sweep.h), or presets
  std::vector<std::string> presets;   // presets.h
  std::string dtype;                  // "fp32", "fp32/bf16"; empty: the dtype of each problem
};

void AddProblemFlags(ArgumentParser* parser, ProblemFlags* flags);

// Ends the error for --lse=FILE in subcommands that write no file.
extern const char kLseHint[];

// Help on the one-line form; kOneProblemHelp is for subcommands that take no lists and ranges.
extern const char kProblemHelp[], kOneProblemHelp[];

// All problems, each once, in the order of the flags. ";" separates problems in one flag. Empty if
// no flag was given. InvalidArgument for a malformed line.
absl::StatusOr<std::vector<AttentionProblem>> ProblemsOf(const ProblemFlags& flags);

// The kernels of "a,b", each once. "all" and an empty text stand for every linked kernel, by rising
// preference. InvalidArgument for a kernel that is not linked; Unimplemented if none is linked.
absl::StatusOr<std::vector<const Kernel*>> KernelsOf(absl::string_view names);

// Whether `names` has the kernel's own name; "all" does not count.
bool IsNamed(const Kernel& kernel, absl::string_view names);

// The configurations of lines with ranges and lists (sweep.h), each once, in order. "default" is the
// empty one. Without a line, that one alone. InvalidArgument for a malformed line and for more than kMostConfigs. If
// kernels are given, also for a key that none of them reads; the error lists each kernel's keys.
absl::StatusOr<std::vector<LaunchConfig>> ConfigsOf(const std::vector<std::string>& lines,
                                                    absl::Span<const Kernel* const> kernels = {});

// Whether the kernel reads all keys of the configuration. Values are not checked.
bool HasKeysOf(const Kernel& kernel, const LaunchConfig& config);

// The device of "cpu" or "cuda:N". Unavailable if it does not exist. "auto" is GPU 0 if one of
// `kernels` does the problem there, otherwise the CPU. If all kernels are GPU kernels, "auto" is
// DeviceFor() of the first.
absl::StatusOr<DeviceInfo> DeviceOf(absl::string_view text, const AttentionProblem& problem,
                                    absl::Span<const Kernel* const> kernels,
                                    const LaunchConfig& config);

// The same for one kernel: "auto" is the CPU for a CPU kernel, and the first GPU that runs a GPU
// kernel. Unavailable if this machine has none; the message begins with the kernel's name.
absl::StatusOr<DeviceInfo> DeviceFor(absl::string_view text, const Kernel& kernel);

// Whether a command leaves out a kernel with that error of DeviceFor() and goes on with others: --device
// was "auto".
bool LeavesOut(absl::string_view device, const absl::Status& error);

// MakePlan(), and a check of memory. ResourceExhausted if the tensors and the workspace exceed the
// free memory of the device, or the tensors exceed that of the host, which keeps a copy.
absl::StatusOr<Plan> PlanFor(const Kernel& kernel, const AttentionProblem& problem,
                             const DeviceInfo& device, const LaunchConfig& config);

// Decides who is to blame if no kernel did anything: the flags, this machine, or this program.
class Blame {
 public:
  // The reason why one kernel, configuration and device did not do a problem.
  void Add(const absl::Status& status);
  // The reason why inputs of a problem cannot be made. InvalidArgument: no machine can make them.
  void AddInputs(const absl::Status& status);

  // Whether it is the flags. Not if a kernel without a device here might have taken them.
  bool Flags() const { return bad_inputs_ || (invalid_ && !impossible_ && !no_device_); }

  // The error of a command that did nothing: InvalidArgument if it is the flags. Unavailable if a
  // kernel that might have done it has no device here, and no other kernel declined the problem.
  // Otherwise Unimplemented: "no kernel here does any of these problems" and `where`.
  absl::Status NothingDone(absl::string_view where = "") const;

 private:
  bool invalid_ = false, impossible_ = false, no_device_ = false, bad_inputs_ = false;
};

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_SELECTION_H_
