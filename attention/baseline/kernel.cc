// The baseline: attention as textbooks write it, with matrix products by cuBLAS and every
// intermediate result in memory.
//
//   1. permute       Q, K and V to one matrix per head
//   2. S = Q Kᵀ      batched matrix product, fp32 out
//   3. scale, mask   S = scale S, softcap; minus infinity for masked scores
//   4. softmax       P = softmax(S), one block per row; LSE
//   5. O = P V       batched matrix product
//   6. permute       O to its tensor
//
// Its time goes into the traffic of S and P, which is quadratic in the sequence length and which
// FlashAttention avoids. In fp32 the products take longer still. docs/baseline.md has figures.
#include "attention/core/kernel.h"

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/baseline/call.h"
#include "attention/baseline/options.h"
#include "attention/baseline/traffic.h"
#include "attention/core/registry.h"
#include "attention/core/supports.h"

namespace attnlab::baseline {
namespace {

absl::StatusOr<Options> Choose(const AttentionProblem& p, const DeviceInfo& device,
                               const LaunchConfig& config) {
  if (absl::Status s = CheckDtypeAndPage(p); !s.ok()) return s;
  absl::StatusOr<Options> options = OptionsFor(p, device, config);
  if (!options.ok()) return options;
  if (absl::Status s = CheckMemory(p, device, *options); !s.ok()) return s;
  return options;
}

class PreparedBaseline : public Prepared {
 public:
  PreparedBaseline(const AttentionProblem& problem, const DeviceInfo& device,
                   const Options& options)
      : problem_(problem),
        ordinal_(device.device.ordinal),
        options_(options),
        layout_(problem, device, options) {}

  int64_t WorkspaceBytes() const override { return layout_.total; }
  bool MultipliesAsTf32() const override { return options_.tf32; }
  absl::Status Run(const AttentionTensors& tensors, const Launch& launch) const override {
    return RunCall(problem_, tensors, launch, ordinal_, options_, layout_);
  }

 private:
  const AttentionProblem problem_;
  const int ordinal_;
  const Options options_;
  const Layout layout_;
};

class BaselineKernel : public Kernel {
 public:
  BaselineKernel() {
    traits_.name = "baseline";
    traits_.summary =
        "six steps with cuBLAS, S and P in memory; before 8.0 bf16 is multiplied as fp32, without "
        "TF32";
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
    traits_.tunable = {
        {"block", {"32", "64", "256", "512"}}, {"permute", {"always"}}, {"softmax", {"fused"}}};
    traits_.preference = 10;
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    const absl::StatusOr<Options> options = Choose(p, device, config);
    if (!options.ok()) return options.status();
    return std::make_unique<const PreparedBaseline>(p, device, *options);
  }

  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                                          const LaunchConfig& config) const override {
    const absl::StatusOr<Options> options = Choose(p, device, config);
    if (!options.ok()) return options.status();
    return baseline::ExpectedTraffic(p, device, *options);
  }

 private:
  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(BaselineKernel);

}  // namespace
}  // namespace attnlab::baseline
