// Attention, in one call: validate, choose a kernel, run.
//
//   AttentionProblem problem = …;
//   AttentionTensors tensors = …;
//   // Chooses the kernel. The plan says how much scratch memory the kernel needs.
//   absl::StatusOr<Plan> plan = MakePlan(problem, Device::Cpu());
//   absl::StatusOr<Buffer> scratch = Buffer::Allocate(Device::Cpu(), plan->workspace_bytes);
//   absl::Status done = Forward(*plan, tensors, {scratch->data(), scratch->bytes()});
//
// A program has the kernels that it links. Depend on //attention:kernels for all of them, or on
// single families such as //attention/cpu.
#ifndef ATTENTION_ATTENTION_H_
#define ATTENTION_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/device.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/registry.h"
#include "attention/core/tensors.h"

namespace attnlab {

// A valid problem, the kernel that computes it, and what that kernel prepared. A plan is a value:
// make it once and use it for any number of calls, on any number of threads. Copies share
// `prepared`.
struct Plan {
  AttentionProblem problem;
  DeviceInfo device;
  LaunchConfig config;
  const Kernel* kernel = nullptr;
  std::shared_ptr<const Prepared> prepared;  // made for the fields above: do not change them
  int64_t workspace_bytes = 0;
  // For tensors that `prepared` does not accept. Null if the kernel accepts all, if the caller has
  // named it, or if no other kernel supports the problem.
  std::shared_ptr<const Plan> otherwise = nullptr;
};

// Plans the problem on the device, for the kernel named `kernel`. If `kernel` is empty, for the
// linked kernel with the highest preference that supports the problem.
//
// Errors: those of AttentionProblem::Validate(), Registry::Check(), InfoOf(), Registry::Find(),
// RunsOn() (runs_on.h) and Kernel::Prepare(). If no linked kernel supports the problem, the message
// has each kernel's reason and the code is
//   InvalidArgument    if every kernel for this kind of device returned it,
//   ResourceExhausted  if one of them returned it,
//   Unimplemented      otherwise.
absl::StatusOr<Plan> MakePlan(const AttentionProblem& problem, Device device,
                              absl::string_view kernel = "", const LaunchConfig& config = {});

// Plans for a kernel that need not be registered, on a device that need not exist. The problem must
// be valid. Errors are those of Kernel::Prepare() alone.
absl::StatusOr<Plan> MakePlan(const Kernel& kernel, const AttentionProblem& problem,
                              const DeviceInfo& device, const LaunchConfig& config = {});

// Runs the plan. `stream` is a cudaStream_t, unused on the CPU. On a GPU the call returns before
// the work is done.
//
// InvalidArgument: tensors that do not fit the problem; a workspace that is null, too small, or not
// aligned to kMemoryAlignment (memory.h); a plan without a kernel; intermediates of the wrong
// shape. Unimplemented: intermediates that the kernel does not form; tensors that neither the kernel
// nor plan.otherwise accepts. Cancelled: a call on the CPU that stop.h ended early.
absl::Status Forward(const Plan& plan, const AttentionTensors& tensors, Workspace workspace = {},
                     void* stream = nullptr, const Intermediates& intermediates = {});

// The same, for keys that come in parts. O and LSE hold what earlier calls made of the same queries with
// other keys; afterwards they are those of all keys. O is rounded to its dtype after each part. The
// tensors must have an LSE.
//
// may_start_early, on a GPU: the call may begin before the kernel ahead of it in the stream has ended. Of what
// this call reads or writes, that one may write O and LSE alone. Copies and events are waited for as ever.
//
// Errors as for Forward(). Unimplemented, before anything is done: a kernel that cannot add, or does not
// accept the tensors. The caller may then merge two results by their LSE.
absl::Status ForwardAdding(const Plan& plan, const AttentionTensors& tensors,
                           Workspace workspace = {}, void* stream = nullptr,
                           bool may_start_early = false);

// Plans, allocates the workspace, runs, and waits for the result. For scripts and first steps.
absl::Status ForwardOnce(const AttentionProblem& problem, const AttentionTensors& tensors,
                         absl::string_view kernel = "", const LaunchConfig& config = {});

}  // namespace attnlab

#endif  // ATTENTION_ATTENTION_H_
