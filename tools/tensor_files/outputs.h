// O and LSE of a call, and their .npy files (tensor_files.h has the shapes).
#ifndef TOOLS_TENSOR_FILES_OUTPUTS_H_
#define TOOLS_TENSOR_FILES_OUTPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/dtype.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/oracle/buffers.h"
#include "tools/tensor_files/npy.h"
#include "tools/tensor_files/tensor_files.h"

namespace attnlab {

// O and LSE on a device, in the layout of the files.
class Outputs {
 public:
  // Allocates O and LSE for these inputs. O is all 0, LSE all -inf.
  static absl::StatusOr<Outputs> Make(const AttentionProblem& problem,
                                      const AttentionTensors& inputs, FileLayout layout,
                                      bool has_batch_axis);

  // Adds both to the arguments of a call.
  void AddTo(AttentionTensors* tensors) const;

  // Copies both to the host after the call.
  absl::Status Fetch();

  // After Fetch(). Writes O in `type`, LSE in fp32.
  absl::Status WriteO(const std::string& path, NpyType type) const;
  absl::Status WriteLse(const std::string& path) const;

  // After Fetch(): views of the copies on the host, valid while this object lives.
  oracle::HostOutputs OnHost();

  const std::vector<int64_t>& o_shape() const { return o_shape_; }
  const std::vector<int64_t>& lse_shape() const { return lse_shape_; }

  struct Summary {
    double min = 0, max = 0, mean = 0;  // of the finite elements
    int64_t elements = 0, nan = 0, infinite = 0;
  };
  // After Fetch().
  Summary SummaryOfO() const;
  Summary SummaryOfLse() const;

 private:
  Outputs() = default;

  DType dtype_ = DType::kFloat32;
  TensorView o_, lse_;
  std::vector<int64_t> o_shape_, lse_shape_;
  Buffer o_device_, lse_device_;
  Buffer o_host_, lse_host_;
};

}  // namespace attnlab

#endif  // TOOLS_TENSOR_FILES_OUTPUTS_H_
