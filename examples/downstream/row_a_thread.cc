// "row_a_thread": the smallest CUDA family. Each thread has one query row and loops over its keys.
#include "row_a_thread.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "attention/core/device.h"
#include "attention/core/dtype.h"
#include "attention/core/kernel.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "attention/core/registry.h"
#include "attention/core/supports.h"
#include "attention/core/tensors.h"
#include "attention/cuda/call.h"
#include "attention/device/arguments_of.h"

namespace downstream {
namespace {

using attnlab::AttentionProblem;
using attnlab::DeviceInfo;
using attnlab::LaunchConfig;

class RowAThreadFamily : public attnlab::Kernel {
 public:
  RowAThreadFamily() {
    traits_.name = "row_a_thread";
    traits_.summary = "a thread a query row; fp32 on CUDA cores";
    traits_.device = attnlab::DeviceKind::kCuda;
    traits_.compute_capabilities = {75, 80, 90};
    traits_.config_keys = {"threads: of a block, 32 to 1024, by default 128"};
    traits_.config_examples = {"threads=32"};
    traits_.preference = 1;
  }

  const attnlab::KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const attnlab::Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    if (absl::Status s = config.CheckKeys({"threads"}); !s.ok()) return s;
    const absl::StatusOr<int64_t> threads = config.GetInteger("threads", 128, 32, 1024);
    if (!threads.ok()) return threads.status();
    if (absl::Status s = attnlab::CheckDtypeAndPage(p); !s.ok()) return s;
    if (p.dtype != attnlab::DType::kFloat32) {
      return absl::UnimplementedError(
          absl::StrCat("dtype: ", attnlab::Name(p.dtype), " is not fp32"));
    }
    if (p.softcap != 0) {
      return absl::UnimplementedError(absl::StrCat("softcap: ", p.softcap, " is not 0, none"));
    }
    constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();
    if (p.sq > 0 && p.b * p.hq > kMostBlocks / p.sq) {
      return absl::UnimplementedError(absl::StrCat("sq: b * hq * sq of ", p.b, " * ", p.hq, " * ",
                                                   p.sq, " rows is above ", kMostBlocks));
    }
    return attnlab::PreparedAs(
        /*workspace_bytes=*/0,
        [p, threads = static_cast<int>(*threads), ordinal = device.device.ordinal](
            const attnlab::AttentionTensors& tensors, const attnlab::Launch& launch) {
          if (p.sq == 0) return absl::OkStatus();  // no rows: CUDA rejects a grid without blocks
          const attnlab::cuda_backend::ScopedDevice current(ordinal);
          if (!current.status().ok()) return current.status();
          return attnlab::cuda_backend::ToStatus(
              RowAThread(attnlab::device::ArgumentsOf(p, tensors), threads,
                         static_cast<cudaStream_t>(launch.stream)),
              "row_a_thread");
        });
  }

 private:
  attnlab::KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(RowAThreadFamily);

}  // namespace
}  // namespace downstream
