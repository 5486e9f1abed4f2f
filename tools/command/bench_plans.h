// What `attnlab bench` times: which kernels, on which device, with which configuration.
#ifndef TOOLS_COMMAND_BENCH_PLANS_H_
#define TOOLS_COMMAND_BENCH_PLANS_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "tools/command/selection.h"
#include "tools/command/time_left.h"

namespace attnlab::command {

// The flags, once they are read.
struct BenchSelection {
  std::string names;  // of the kernels, as they were given
  std::vector<const Kernel*> kernels;
  std::vector<LaunchConfig> configs;
  std::string device = "auto";
  std::string baseline;  // timed however slow it is
  uint64_t seed = 0;     // of inputs, on which lengths depend
};

// What was left out, and why: each reason once, however many rows it is the reason for.
class LeftOut {
 public:
  // Of the subcommand "attnlab bench", as it is printed.
  explicit LeftOut(std::string command) : command_(std::move(command)) {}

  // `status` is the reason, with the kernel's name; `where` the problem, or "" for any.
  void Add(const absl::Status& status, const std::string& where);

  // Inputs of the problem cannot be made.
  void AddInputs(const absl::Status& status, const std::string& where);

  const Blame& blame() const { return blame_; }

  // "attnlab bench: cpu: … (b=1,… and 3 more)", a line each.
  void Print(std::ostream& out) const;

 private:
  struct Reason {
    std::string message, where;
    int64_t count = 0;
  };
  void Note(const absl::Status& status, const std::string& where);

  std::string command_;
  std::vector<Reason> reasons_;
  Blame blame_;
};

// Plans of one problem: every kernel, on the device that it runs on, with every configuration that
// it takes. Errors are those of the device that was asked for.
absl::StatusOr<std::vector<Plan>> PlansOf(const AttentionProblem& problem,
                                          const BenchSelection& selection, LeftOut* left_out);

// Takes out what would take minutes, unless it was asked for by name: kernels that are there for
// checking alone, and those of the CPU beside one of a GPU.
void LeaveOutSlow(const BenchSelection& selection, CallTimes* times, std::vector<Plan>* plans,
                  LeftOut* left_out);

// What is timed when nobody says: the longest problem for which the slowest of the kernels takes
// part of a second a call.
absl::StatusOr<AttentionProblem> DefaultProblem(DType dtype, const BenchSelection& selection);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_BENCH_PLANS_H_
