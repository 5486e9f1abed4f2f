// Attention, in one call: validate, choose a kernel, run.
//
//   AttentionProblem problem = …;
//   AttentionTensors tensors = …;
//   // Which kernel, and how much scratch it wants.
//   absl::StatusOr<Plan> plan = MakePlan(problem, Device::Cpu());
//   absl::StatusOr<Buffer> scratch = Buffer::Allocate(Device::Cpu(), plan->workspace_bytes);
//   absl::Status done = Forward(*plan, tensors, {scratch->data(), scratch->bytes()});
//
// A program has the kernels that it links: depend on //attention:kernels for all of them, or on
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

// A valid problem, the kernel that will do it, and what that needs. A value; make it once and
// use it for any number of calls, on any number of threads. Copies share what was prepared.
struct Plan {
  AttentionProblem problem;
  DeviceInfo device;
  LaunchConfig config;
  const Kernel* kernel = nullptr;
  std::shared_ptr<const Prepared> prepared;  // for the fields above: change none of them alone
  int64_t workspace_bytes = 0;
};

// Plans the problem on the device, by the kernel of that name, or if it is empty by the linked
// one with the highest preference that supports it. Errors: those of
// AttentionProblem::Validate(), InfoOf(), Registry::Find(), Kernel::Prepare(); Unimplemented
// when no linked kernel supports the problem, with each one's reason; InvalidArgument when every
// reason of the device's kernels is one, ResourceExhausted when one of them is.
absl::StatusOr<Plan> MakePlan(const AttentionProblem& problem, Device device,
                              absl::string_view kernel = "", const LaunchConfig& config = {});

// The plan of a kernel that need not be registered, on a device that need not be there. Takes a
// valid problem; the errors are those of Kernel::Prepare() alone.
absl::StatusOr<Plan> MakePlan(const Kernel& kernel, const AttentionProblem& problem,
                              const DeviceInfo& device, const LaunchConfig& config = {});

// Runs the plan. `stream` is a cudaStream_t, unused on the CPU; on a GPU the call returns before
// the work is done. InvalidArgument for tensors that do not fit the problem, a workspace that is
// null or too small or not aligned to kMemoryAlignment (memory.h), a plan without a kernel, or
// intermediates of the wrong shape; Unimplemented for intermediates that the kernel does not form;
// Cancelled for a call on the CPU that stop.h ended early.
absl::Status Forward(const Plan& plan, const AttentionTensors& tensors, Workspace workspace = {},
                     void* stream = nullptr, const Intermediates& intermediates = {});

// Plans, allocates the workspace, runs, and waits until it is done: for scripts and first steps.
absl::Status ForwardOnce(const AttentionProblem& problem, const AttentionTensors& tensors,
                         absl::string_view kernel = "", const LaunchConfig& config = {});

}  // namespace attnlab

#endif  // ATTENTION_ATTENTION_H_
