// What a kernel is.
//
// A kernel family implements Kernel and registers it (registry.h). Tests, benchmarks, the
// command and the profiler walk the registry and know no kernel by name: a new kernel is one
// directory, and one line in //attention:kernels.
//
// Prepare() decides everything that depends on the problem alone, once: the tile, the splits, the
// schedule, the layout of the workspace, which code runs. What it returns is run any number of
// times, from any number of threads at once, each with its own workspace and outputs. A run costs
// the host about a microsecond besides the launch.
//
// The contract of Prepared::Run(), which the conformance suite holds every kernel to:
//   - On a GPU it is asynchronous on the caller's stream, allocates nothing, waits for nothing,
//     and can be captured in a CUDA graph. On the CPU it is done on return. What the first call in
//     a process sets up (loaded code, a library's handle) may allocate; it is kept.
//   - Scratch comes from the caller; its content before the call does not matter.
//   - The same call gives the same bits every time.
//   - It writes O and LSE of the rows in use and nothing else, workspace aside.
#ifndef ATTENTION_CORE_KERNEL_H_
#define ATTENTION_CORE_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/tensors.h"

namespace attnlab {

// Fixed facts about a kernel, for lists and tables.
struct KernelTraits {
  std::string name;     // lower case, the registry's key: "cpu", "fa2"
  std::string summary;  // one line
  DeviceKind device = DeviceKind::kCpu;
  // Built for these; empty on the CPU. The kernel runs on any GPU from the least of them on, for
  // PTX of one runs on all later ones (runs_on.h). Below it MakePlan() says Unimplemented; what
  // later GPUs do not run either, such as code for sm_90a alone, is for Supports() to decline.
  std::vector<int> compute_capabilities;
  std::vector<std::string> config_keys;  // what it reads of a LaunchConfig, "tile_q: rows of …"
  // Configurations that take other paths than the default, as "softmax=fused,block=32": the
  // conformance suite runs them all.
  std::vector<std::string> config_examples;
  // Those of them that compute in another way than the default: tests that are too long for all
  // examples run these, and comparisons show each of them.
  std::vector<std::string> variants;
  // Whether it forms S and P in memory and gives them to who asks, see Intermediates.
  bool gives_intermediates = false;
  // Among the kernels that support a problem, the one with the highest preference is the
  // default. 0: for checking, never chosen while another will do.
  int preference = 0;
};

// Scratch memory, on the device of the tensors, aligned to kMemoryAlignment (memory.h).
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

// What lies between Q, K, V and O, from a kernel that forms it: for checking and for teaching.
// Views in fp32 with the shape of O but skv in place of dv: [b, sq, hq, skv], or packed [1,
// tokens_q, hq, skv]. Null data: not wanted. Rows that no sequence uses are not written.
struct Intermediates {
  TensorView scores;         // S with scale, softcap and mask: minus infinity for hidden keys
  TensorView probabilities;  // P as it is multiplied with V, rounded to its dtype; 0 if hidden

  bool wanted() const { return scores.data != nullptr || probabilities.data != nullptr; }
};

// Where to run.
struct Launch {
  Workspace workspace;     // at least Prepared::WorkspaceBytes()
  void* stream = nullptr;  // cudaStream_t; unused on the CPU
  Intermediates intermediates = {};
};

// A kernel that is ready for one problem, on one device, with one configuration. Immutable; it may
// refer to its kernel, but not to the arguments of Prepare().
class Prepared {
 public:
  virtual ~Prepared() = default;

  // Scratch bytes of a call.
  virtual int64_t WorkspaceBytes() const { return 0; }

  // Whether it multiplies fp32 numbers as TF32: then its errors are held to what that costs.
  virtual bool MultipliesAsTf32() const { return false; }

  // Attention. The caller has validated tensors, workspace and intermediates: Forward() in
  // attention.h does so.
  virtual absl::Status Run(const AttentionTensors& tensors, const Launch& launch) const = 0;
};

// A Prepared that is a function of Run()'s arguments, for kernels that need no more: a lambda that
// holds by value what was chosen.
template <typename Function>
std::unique_ptr<const Prepared> PreparedAs(int64_t workspace_bytes, Function run) {
  class FromFunction : public Prepared {
   public:
    FromFunction(int64_t workspace_bytes, Function run)
        : workspace_bytes_(workspace_bytes), run_(std::move(run)) {}
    int64_t WorkspaceBytes() const override { return workspace_bytes_; }
    absl::Status Run(const AttentionTensors& tensors, const Launch& launch) const override {
      return run_(tensors, launch);
    }

   private:
    const int64_t workspace_bytes_;
    const Function run_;
  };
  return std::make_unique<const FromFunction>(workspace_bytes, std::move(run));
}

class Kernel {
 public:
  virtual ~Kernel() = default;

  virtual const KernelTraits& traits() const = 0;

  // The kernel, ready for the problem, or why it cannot do it there with this configuration:
  // Unimplemented for what it does not do, InvalidArgument for a configuration that makes no sense,
  // ResourceExhausted for one that does not fit, with how much it needs and how much there is.
  // The problem is valid. The device need not be there: a description of one is enough.
  virtual absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& problem, const DeviceInfo& device,
      const LaunchConfig& config) const = 0;

  // OK, or the error of Prepare().
  absl::Status Supports(const AttentionProblem& problem, const DeviceInfo& device,
                        const LaunchConfig& config) const {
    return Prepare(problem, device, config).status();
  }

  // The family's own model of the work that a call does and the bytes that it moves between the
  // device and its main memory, with all sequences at their maximal lengths. By default what any
  // kernel must do; a family says otherwise where its algorithm moves more. Errors as Supports().
  virtual absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& problem,
                                                  const DeviceInfo& device,
                                                  const LaunchConfig& config) const {
    if (absl::Status s = Supports(problem, device, config); !s.ok()) return s;
    return CompulsoryTraffic(problem);
  }
};

}  // namespace attnlab

#endif  // ATTENTION_CORE_KERNEL_H_
