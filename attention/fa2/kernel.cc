// FA2: FlashAttention-2 (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work
// Partitioning", 2023). One thread block per (sequence, head, query tile), so that a long sequence
// with few heads fills the GPU too. Tensor cores multiply through mma.sync, with S, P and O in
// registers.
//
// Its time goes into those products. mma.sync reaches two thirds of the peak of Hopper's tensor
// cores, and reading fragments of K and V from shared memory takes nearly as long. fp32 runs on
// CUDA cores in the same structure, or as 3xTF32 on tensor cores. docs/fa2.md says more.
#include "attention/core/kernel.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/registry.h"
#include "attention/core/supports.h"
#include "attention/cuda/call.h"
#include "attention/cuda/code_capability_of.h"
#include "attention/device/arguments_of.h"
#include "attention/device/element_of.h"
#include "attention/device/grid_traffic.h"
#include "attention/fa2/call.h"
#include "attention/fa2/options.h"

namespace attnlab::fa2 {
namespace {

absl::StatusOr<Options> Choose(const AttentionProblem& p, const DeviceInfo& device,
                               const LaunchConfig& config) {
  if (absl::Status s = CheckDtypeAndPage(p); !s.ok()) return s;
  // Only products on tensor cores depend on it: those of 16 bits and TF32.
  const bool depends = device.compute_capability >= 80 &&
                       (p.dtype != DType::kFloat32 || config.Get("mma", "auto") == "tf32x3");
  return OptionsFor(p, device,
                    depends ? cuda_backend::CodeCapabilityOf(device) : device.compute_capability,
                    config);
}

class Fa2Kernel : public Kernel {
 public:
  Fa2Kernel() {
    traits_.name = "fa2";
    traits_.summary =
        "one block per query tile, tensor cores through mma.sync, bf16 from 8.0 on; fp32 on CUDA "
        "cores; head dims to 256";
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {75, 80, 86, 89, 90, 100, 120};
    traits_.config_keys = ConfigKeys();
    traits_.config_examples = {"tile_q=64",   "tile_q=64,tile_kv=32", "tile_q=32", "tile_kv=64",
                               "pack=always", "pack=never",           "mma=tf32x3"};
    traits_.variants = {"mma=tf32x3"};
    traits_.tunable = {{"tile_q", {"16", "32", "64", "128", "256"}}, {"pack", {"always", "never"}}};
    traits_.preference = 50;
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    const absl::StatusOr<Options> options = Choose(p, device, config);
    if (!options.ok()) return options.status();
    return PreparedAs(
        /*workspace_bytes=*/0, [p, options = *options, ordinal = device.device.ordinal](
                                   const AttentionTensors& t, const Launch& launch) {
          const cuda_backend::ScopedDevice current(ordinal);
          if (!current.status().ok()) return current.status();
          return cuda_backend::ToStatus(
              fa2::Run(device::ArgumentsOf(p, t), device::ElementOf(p.dtype), options,
                       static_cast<cudaStream_t>(launch.stream)),
              "fa2");
        });
  }

  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                                          const LaunchConfig& config) const override {
    const absl::StatusOr<Options> options = Choose(p, device, config);
    if (!options.ok()) return options.status();
    return device::GridTraffic(p, device, options->grid, options->Rows(), options->blocks);
  }

 private:
  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(Fa2Kernel);

}  // namespace
}  // namespace attnlab::fa2
