// What a subcommand works on: flags for problems, kernels, configurations and devices.
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
  std::string dtype;                  // "fp32", "fp32/bf16"; empty: as the problems say
};

void AddProblemFlags(ArgumentParser* parser, ProblemFlags* flags);

// The end of an error: of --lse=FILE where there is no file to write.
extern const char kLseHint[];

// The help text of the one-line form; and where a line is one problem, without lists and ranges.
extern const char kProblemHelp[], kOneProblemHelp[];

// All problems, each once, in the order of the flags; ";" separates several in one flag. Empty when
// no flag was given. InvalidArgument for a line that is none.
absl::StatusOr<std::vector<AttentionProblem>> ProblemsOf(const ProblemFlags& flags);

// The kernels of "a,b", each once. "all" among the names (empty is "all", too) stands for every
// kernel that is linked, in the order of their preference, the one for checking first.
// InvalidArgument for a name that is not linked; Unimplemented when no kernel is linked.
absl::StatusOr<std::vector<const Kernel*>> KernelsOf(absl::string_view names);

// Whether the kernel itself is among the names, not by "all" alone.
bool IsNamed(const Kernel& kernel, absl::string_view names);

// The configurations of lines with ranges and lists (sweep.h), each once, in order; one that is
// empty when no line is given. InvalidArgument for a line that is none, and for more than
// kMostConfigs.
// Where kernels are given, also for a key that none of them reads: the key, and what keys each
// kernel has.
absl::StatusOr<std::vector<LaunchConfig>> ConfigsOf(const std::vector<std::string>& lines,
                                                    absl::Span<const Kernel* const> kernels = {});

// Whether the kernel reads all keys of the configuration, whatever their values.
bool HasKeysOf(const Kernel& kernel, const LaunchConfig& config);

// The device of "cpu" or "cuda:N", which must exist: Unavailable if not. "auto" is GPU 0 if one
// of `kernels` runs on it and supports the problem, else the CPU; for kernels of GPUs alone as
// DeviceFor() of the first of them.
absl::StatusOr<DeviceInfo> DeviceOf(absl::string_view text, const AttentionProblem& problem,
                                    absl::Span<const Kernel* const> kernels,
                                    const LaunchConfig& config);

// The same for one kernel, wherever that runs: "auto" is the CPU for a kernel of the CPU, and the
// first GPU that a GPU kernel was built for. Unavailable where this machine has none; the message
// begins with the kernel's name.
absl::StatusOr<DeviceInfo> DeviceFor(absl::string_view text, const Kernel& kernel);

// As MakePlan(); and ResourceExhausted where the tensors and the workspace do not fit what is free
// on the device, or the tensors what is free on the host, which keeps a copy.
absl::StatusOr<Plan> PlanFor(const Kernel& kernel, const AttentionProblem& problem,
                             const DeviceInfo& device, const LaunchConfig& config);

// Whether it is the flags, where nothing could be done for several reasons, or what this machine
// or this program lacks.
class Blame {
 public:
  // Why one kernel, configuration and device did not do a problem.
  void Add(const absl::Status& status);
  // Why inputs of a problem cannot be made: by no machine, if that is InvalidArgument.
  void AddInputs(const absl::Status& status);

  // A kernel that this machine has no device for might have taken them.
  bool Flags() const { return bad_inputs_ || (invalid_ && !impossible_ && !no_device_); }

  // What a command that did nothing ends with: InvalidArgument where it is the flags; Unavailable
  // where a kernel that might have done it has no device here, and no other declined the problem;
  // else Unimplemented, "no kernel here does any of these problems" and `where`.
  absl::Status NothingDone(absl::string_view where = "") const;

 private:
  bool invalid_ = false, impossible_ = false, no_device_ = false, bad_inputs_ = false;
};

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_SELECTION_H_
