// What a rank does with its own data besides attention: on a CPU at once, on a GPU in the order of a stream.
// Schedules (ring.cc) are the same for both.
#ifndef ATTENTION_MULTI_GPU_EXECUTOR_H_
#define ATTENTION_MULTI_GPU_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/attention.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"

namespace attnlab::multi_gpu {

// Use it on one thread, which must not change its current GPU meanwhile.
class Executor {
 public:
  virtual ~Executor() = default;

  // Memory that lives as long as this object, aligned to kMemoryAlignment. On a GPU: for work on the
  // stream until then.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;

  // Elements to the same places of `to`, which may have more rows.
  virtual absl::Status Copy(const ConstTensorView& from, const TensorView& to) = 0;

  // The sum of `parts` parts, in fp32 (device/online_softmax.h). The same parts in the same order give the same bits.
  // Once per object.
  virtual absl::Status Reset(int64_t b, int64_t rows, int64_t heads, int64_t dv, int64_t parts) = 0;
  // Of queries from `first_row` on. The memory of a part may change once the next one was added, but that of the last
  // two only after Store(): so they are merged in one pass.
  virtual absl::Status Add(const ConstTensorView& o, const ConstTensorView& lse,
                           int64_t first_row) = 0;
  // lse.data may be null. The first of at most two parts may lie where the same rows are stored: those to which
  // nothing is added then stay as they are.
  virtual absl::Status Store(const TensorView& o, const TensorView& lse) = 0;

  // Notes when the work so far is done. Times() waits for that, and gives the seconds from the first note to each.
  virtual absl::Status NoteTime() = 0;
  virtual absl::StatusOr<std::vector<double>> Times() = 0;
};

// A problem planned for a kernel ("": the default one), with its workspace.
struct Call {
  Plan plan;
  Workspace workspace;
};
absl::StatusOr<Call> PlanCall(const AttentionProblem& problem, Device device,
                              const std::string& kernel, Executor& executor);

// `stream`: a cudaStream_t of the GPU, unused on a CPU.
absl::StatusOr<std::unique_ptr<Executor>> MakeExecutor(Device device, void* stream);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_EXECUTOR_H_
