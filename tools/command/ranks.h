// A problem that is divided among GPUs or threads, for `attnlab bench --gpus` and `attnlab profile --gpus`.
#ifndef TOOLS_COMMAND_RANKS_H_
#define TOOLS_COMMAND_RANKS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/pieces.h"
#include "attention/multi_gpu/ring.h"
#include "attention/multi_gpu/simulator.h"

namespace attnlab::command {

// A way to divide a problem. `model`: the simulator's, if it has one; split KV has none.
struct NamedWay {
  const char* name;
  std::optional<multi_gpu::Way> model;

  bool SplitsKv() const { return !model.has_value(); }
  bool ByHeads() const { return model == multi_gpu::Way::kHeads; }
  multi_gpu::Order order() const {
    return model == multi_gpu::Way::kZigzagRing ? multi_gpu::Order::kZigzag
                                                : multi_gpu::Order::kInOrder;
  }
};
constexpr NamedWay kOne = {"one", multi_gpu::Way::kHeads};
absl::Span<const NamedWay> Ways();
// InvalidArgument about --parallel for a name that does not exist.
absl::StatusOr<NamedWay> WayOf(absl::string_view name);

using Ranks = std::vector<std::unique_ptr<multi_gpu::Communicator>>;
// Threads, or so many GPUs from `first` on: Unavailable, about --gpus, if there are fewer.
absl::StatusOr<Ranks> MakeRanks(int count, bool on_cpu, int first = 0);

// Calls `of_rank` on a thread per rank. The first error.
absl::Status OnRanks(const Ranks& ranks, const std::function<absl::Status(int)>& of_rank);

// Tensors of all ranks, each with its part, and the call.
class DividedProblem {
 public:
  // `whole`: Q, K and V in host memory. `o`: of its shape. O of the ranks is NaN, so that rows that are not written
  // show. The communicators must outlive this object.
  static absl::StatusOr<DividedProblem> Make(const AttentionProblem& problem, NamedWay way,
                                             const Ranks& ranks, const AttentionTensors& whole,
                                             const ConstTensorView& o);
  DividedProblem(DividedProblem&&) noexcept;
  ~DividedProblem();

  // On a thread per rank. `kernel`: "" for the default one. `steps` of a ring may be null.
  absl::Status Call(int rank, const std::string& kernel,
                    std::vector<multi_gpu::StepTime>* steps) const;
  absl::Status GiveO(const TensorView& whole);

 private:
  struct Part;
  DividedProblem();

  AttentionProblem problem_;
  NamedWay way_ = kOne;
  std::vector<Part> parts_;
};

}  // namespace attnlab::command

#endif  // TOOLS_COMMAND_RANKS_H_
