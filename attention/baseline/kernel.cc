// The baseline: attention as textbooks write it, matrix products by cuBLAS and everything between
// them through memory.
//
//   1. permute       Q, K and V to one matrix a head
//   2. S = Q Kᵀ      batched matrix product, fp32 out
//   3. scale, mask   S = scale S, softcap; minus infinity where the mask hides
//   4. softmax       P = softmax(S), a block a row; LSE
//   5. O = P V       batched matrix product
//   6. permute       O to where it belongs
//
// Its time goes into the traffic of S and P, which is quadratic in the length of the sequence and
// which FlashAttention does away with; in fp32 the products take longer still. docs/baseline.md has
// figures.
#include "attention/kernel.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/baseline/call.h"
#include "attention/baseline/options.h"
#include "attention/baseline/traffic.h"
#include "attention/device/supports.h"
#include "attention/registry.h"

namespace attnlab::baseline {
namespace {

class BaselineKernel : public Kernel {
 public:
  BaselineKernel() {
    traits_.name = "baseline";
    traits_.summary =
        "six steps with cuBLAS, S and P in memory; before 8.0 bf16 is multiplied as fp32 and there "
        "is no TF32";
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {75, 80, 86, 89, 90, 100, 120};
    traits_.config_keys = ConfigKeys();
    traits_.config_examples = {"softmax=fused",
                               "softmax=fused,block=32",
                               "softmax=fused,block=512",
                               "permute=always",
                               "block=32",
                               "math=tf32",
                               "math=tf32,softmax=fused"};
    traits_.gives_intermediates = true;
    traits_.preference = 10;
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::Status Supports(const AttentionProblem& p, const DeviceInfo& device,
                        const LaunchConfig& config) const override {
    if (absl::Status s = device::CheckDtypeAndPage(p); !s.ok()) return s;
    const absl::StatusOr<Options> options = OptionsFor(p, device, config);
    if (!options.ok()) return options.status();
    return CheckMemory(p, device, *options);
  }

  absl::StatusOr<int64_t> WorkspaceBytes(const AttentionProblem& p, const DeviceInfo& device,
                                         const LaunchConfig& config) const override {
    if (absl::Status s = Supports(p, device, config); !s.ok()) return s;
    const absl::StatusOr<Options> options = OptionsFor(p, device, config);
    if (!options.ok()) return options.status();
    return Layout(p, device, *options).total;
  }

  absl::Status Forward(const AttentionProblem& p, const AttentionTensors& t,
                       const Launch& launch) const override {
    const absl::StatusOr<Options> options = OptionsFor(p, launch.device, launch.config);
    if (!options.ok()) return options.status();
    return RunCall(p, t, launch, *options);
  }

  bool MultipliesAsTf32(const AttentionProblem&, const LaunchConfig& config) const override {
    return config.Get("math", "") == "tf32";
  }

  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                                          const LaunchConfig& config) const override {
    if (absl::Status s = Supports(p, device, config); !s.ok()) return s;
    const absl::StatusOr<Options> options = OptionsFor(p, device, config);
    if (!options.ok()) return options.status();
    return baseline::ExpectedTraffic(p, device, *options);
  }

 private:
  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(BaselineKernel);

}  // namespace
}  // namespace attnlab::baseline
