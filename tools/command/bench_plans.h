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

// The parsed flags.
struct BenchSelection {
  std::string names;  // the value of --kernel
  std::vector<const Kernel*> kernels;
  std::vector<LaunchConfig> configs;
  std::string device = "auto";
  std::string baseline;  // timed however slow it is
  uint64_t seed = 0;     // seed of the inputs and of their lengths
};

// Rows that were left out: each reason once, with the number of rows.
class LeftOut {
 public:
  // `command` begins each line: "attnlab bench".
  explicit LeftOut(std::string command) : command_(std::move(command)) {}

  // `status` is the reason and begins with the kernel's name. `where` is the problem, "" for all.
  void Add(const absl::Status& status, const std::string& where);

  // The same for a problem whose inputs cannot be made.
  void AddInputs(const absl::Status& status, const std::string& where);

  const Blame& blame() const { return blame_; }

  // "attnlab bench: cpu: … (b=1,… and 3 more)", one line per reason.
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

// Plans of one problem: every kernel, on its device, with every configuration that it takes. An
// error means that the requested device cannot be used.
absl::StatusOr<std::vector<Plan>> PlansOf(const AttentionProblem& problem,
                                          const BenchSelection& selection, LeftOut* left_out);

// Removes plans that would take minutes, unless requested by name: kernels for checking only, and
// CPU kernels if a GPU kernel is there.
void LeaveOutSlow(const BenchSelection& selection, CallTimes* times, std::vector<Plan>* plans,
                  LeftOut* left_out);

// The default problem: the longest of a few that every kernel does in a fraction of a second.
absl::StatusOr<AttentionProblem> DefaultProblem(DType dtype, const BenchSelection& selection);

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_BENCH_PLANS_H_
