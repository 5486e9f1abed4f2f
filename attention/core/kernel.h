// The interface of a kernel.
//
// A kernel family implements Kernel and registers it (registry.h). Tests, benchmarks, the command
// and the profiler walk the registry and know no kernel by name. A new kernel is one directory, and
// one line in //attention:kernels.
//
// Prepare() decides once everything that depends on the problem alone: the tile, the splits, the
// schedule, the layout of the workspace, which code runs. The prepared kernel may run any number of
// times, on any number of threads at once, each with its own workspace and outputs. A run costs the
// host about a microsecond besides the launch.
//
// The contract of Prepared::Run(), which the conformance suite checks for every kernel:
//   - On a GPU it is asynchronous on the caller's stream, allocates nothing, waits for nothing,
//     and can be captured in a CUDA graph. On the CPU the work is done on return. The first call in
//     a process may allocate what it sets up (loaded code, a library's handle) and keeps.
//   - Scratch comes from the caller; its content before the call does not matter.
//   - The same call gives the same bits every time.
//   - It writes O and LSE of the rows in use, its workspace, and nothing else.
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
  // The capabilities that it is built for; empty on the CPU. The kernel runs on any GPU from the
  // lowest of them on, because later GPUs run its PTX (runs_on.h). On older GPUs MakePlan() returns
  // Unimplemented. Supports() must decline later GPUs if they cannot run the code, such as code for
  // sm_90a alone.
  std::vector<int> compute_capabilities;
  std::vector<std::string> config_keys;  // LaunchConfig keys that it reads, "tile_q: rows of …"
  // Configurations that take other code paths than the default, such as "softmax=fused,block=32".
  // The conformance suite runs them all.
  std::vector<std::string> config_examples;
  // The examples that run other code, not only another tile. Tests that are too long for all
  // examples run the default and these.
  std::vector<std::string> variants;
  // Keys and values whose combinations may be faster than the kernel's own choice, for the tuner
  // (attention/tune). Prepare() may decline some. Values that change the arithmetic are not here.
  std::vector<std::pair<std::string, std::vector<std::string>>> tunable;
  // Whether there are tensors that it does not take, because of their strides or addresses:
  // Prepared::Accepts() says which. It takes all that lie at multiples of 16 bytes, with positive
  // strides.
  bool needs_aligned_rows = false;
  // Whether it forms S and P in memory and returns them on request; see Intermediates.
  bool gives_intermediates = false;
  // Of the kernels that support a problem, the default is the one with the highest preference
  // (PreferenceFor()). 0: for checking; chosen only if no other kernel supports the problem.
  int preference = 0;
};

// Scratch memory on the device of the tensors, aligned to kMemoryAlignment (memory.h).
struct Workspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

// S and P, from a kernel that forms them in memory: for checking and for teaching. Views in fp32
// with the shape of O but skv in place of dv: [b, sq, hq, skv], or packed [1, tokens_q, hq, skv].
// Null data: not wanted. Rows that no sequence uses are not written.
struct Intermediates {
  TensorView scores;         // S after scale, softcap and mask: minus infinity for hidden keys
  TensorView probabilities;  // P as multiplied with V, rounded to its dtype; 0 for hidden keys

  bool wanted() const { return scores.data != nullptr || probabilities.data != nullptr; }
};

// The arguments of a run besides the tensors.
struct Launch {
  Workspace workspace;     // at least Prepared::WorkspaceBytes()
  void* stream = nullptr;  // cudaStream_t; unused on the CPU
  Intermediates intermediates = {};
  // ForwardAdding() in attention.h says to what, and what may_start_early means. Only if Prepared::CanAdd().
  bool adds = false, may_start_early = false;
};

// A kernel that is ready for one problem, on one device, with one configuration. Immutable. It may
// refer to its kernel, but not to the arguments of Prepare().
class Prepared {
 public:
  virtual ~Prepared() = default;

  // The scratch bytes that a run needs.
  virtual int64_t WorkspaceBytes() const { return 0; }

  // The first bytes of the workspace that a run reads before it writes them, whatever they hold:
  // counters (device/counter.cuh). initcheck takes other such reads for mistakes.
  virtual int64_t CounterBytes() const { return 0; }

  // Whether it multiplies fp32 values as TF32. Tests then allow the larger error of TF32.
  virtual bool MultipliesAsTf32() const { return false; }

  // Whether a run can add to the O and LSE that are there (Launch::adds).
  virtual bool CanAdd() const { return false; }

  // OK, or Unimplemented with the stride or address that this kernel cannot use. Forward() then
  // runs another kernel, unless the caller has named this one.
  virtual absl::Status Accepts(const AttentionTensors& /*tensors*/) const {
    return absl::OkStatus();
  }

  // Computes attention. The caller has validated tensors, workspace and intermediates, as Forward()
  // in attention.h does, and Accepts() returns OK.
  virtual absl::Status Run(const AttentionTensors& tensors, const Launch& launch) const = 0;
};

// Makes a Prepared of a function with Run()'s arguments, for kernels that need no more: usually a
// lambda that holds by value what Prepare() chose.
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

  // The preference for a problem. A family overrides it if it is the best for some problems only.
  virtual int PreferenceFor(const AttentionProblem& /*problem*/,
                            const DeviceInfo& /*device*/) const {
    return traits().preference;
  }

  // The kernel, ready for the problem, or an error:
  //   Unimplemented      the kernel does not do this problem on this device
  //   InvalidArgument    the configuration makes no sense
  //   ResourceExhausted  it does not fit; the message says how much it needs and how much there is
  // The problem is valid. The device need not exist: a description of one is enough.
  virtual absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& problem, const DeviceInfo& device,
      const LaunchConfig& config) const = 0;

  // OK, or the error of Prepare().
  absl::Status Supports(const AttentionProblem& problem, const DeviceInfo& device,
                        const LaunchConfig& config) const {
    return Prepare(problem, device, config).status();
  }

  // The family's own model of a call: its FLOPs, and the bytes that it moves between the device and
  // main memory, with all sequences at their maximum lengths. The default is CompulsoryTraffic(). A
  // family overrides it if its algorithm moves more. Errors as for Supports().
  virtual absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& problem,
                                                  const DeviceInfo& device,
                                                  const LaunchConfig& config) const {
    if (absl::Status s = Supports(problem, device, config); !s.ok()) return s;
    return CompulsoryTraffic(problem);
  }
};

}  // namespace attnlab

#endif  // ATTENTION_CORE_KERNEL_H_
