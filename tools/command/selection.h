// What a subcommand works on: flags for problems, kernels, configurations and devices.
#ifndef TOOLS_COMMAND_SELECTION_H_
#define TOOLS_COMMAND_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/attention.h"
#include "attention/kernel.h"
#include "attention/launch_config.h"
#include "attention/machine.h"
#include "attention/problem.h"
#include "tools/arguments.h"

namespace attnlab::command {

struct ProblemFlags {
  std::vector<std::string> problems;  // one-line forms with ranges and lists (sweep.h), or presets
  std::vector<std::string> presets;   // presets.h
  std::string dtype;                  // "fp32", "fp32/bf16"; empty: as the problems say
};

void AddProblemFlags(ArgumentParser* parser, ProblemFlags* flags);

// The help text of the one-line form.
extern const char kProblemHelp[];

// All problems, in the order of the flags; ";" separates several in one flag. Empty when no flag
// was given. InvalidArgument for a line that is none.
absl::StatusOr<std::vector<AttentionProblem>> ProblemsOf(const ProblemFlags& flags);

// The kernels of "all" (empty is "all", too) or of "a,b". Those of "all" come in the order of
// their preference, the one for checking first. InvalidArgument for a name that is not linked;
// Unimplemented when no kernel is linked.
absl::StatusOr<std::vector<const Kernel*>> KernelsOf(absl::string_view names);

// One empty configuration when none is given.
absl::StatusOr<std::vector<LaunchConfig>> ConfigsOf(const std::vector<std::string>& lines);

// The device of "cpu" or "cuda:N", which must exist: Unavailable if not. "auto" is GPU 0 if one
// of `kernels` runs on it and supports the problem, else the CPU.
absl::StatusOr<DeviceInfo> DeviceOf(absl::string_view text, const AttentionProblem& problem,
                                    absl::Span<const Kernel* const> kernels,
                                    const LaunchConfig& config);

// As MakePlan(); and ResourceExhausted where the tensors and the workspace cannot fit the device.
absl::StatusOr<Plan> PlanFor(const Kernel& kernel, const AttentionProblem& problem,
                             const DeviceInfo& device, const LaunchConfig& config);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_SELECTION_H_
