// Warp specialisation without Hopper's instructions: some warps of a block only copy K and V, others
// only compute. Producers use cp.async, or before 8.0 plain loads and stores; consumers are those of
// FlashAttention-2, with mma.sync, or CUDA cores for fp32. docs/warp_specialized.md says more.
//
// Its time goes where FA2's goes: into mma.sync and the reads of fragments from shared memory. What
// it gains, that consumers neither copy nor wait for each other, it loses again to registers.
// Before Hopper all warps of a block have equally many, so a producer takes those of a consumer.
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/kernel.h"
#include "attention/core/registry.h"
#include "attention/core/supports.h"
#include "attention/cuda/call.h"
#include "attention/cuda/code_capability_of.h"
#include "attention/device/arguments_of.h"
#include "attention/device/element_of.h"
#include "attention/warp_specialized/portable_call.h"
#include "attention/warp_specialized/portable_options.h"

namespace attnlab::warp_specialized {
namespace {

using Launcher = cudaError_t (*)(const PortableCall&);

Launcher LauncherOf(const PortableTile& tile) {
  switch (tile.head_dim) {
    case 64:
      return tile.fp32                                        ? LaunchPortableFp32<64>
             : tile.most_warps == Portable64Small::kMostWarps ? LaunchPortable<Portable64Small>
                                                              : LaunchPortable<Portable64>;
    case 128:
      return tile.fp32 ? LaunchPortableFp32<128> : LaunchPortable<Portable128>;
    default:
      return tile.fp32                              ? LaunchPortableFp32<256>
             : tile.keys == Portable256Small::kKeys ? LaunchPortable<Portable256Small>
                                                    : LaunchPortable<Portable256>;
  }
}

class WarpSpecializedPortable : public Kernel {
 public:
  WarpSpecializedPortable() {
    traits_.name = "warp_specialized_portable";
    traits_.summary =
        "producer warps copy, consumer warps compute, on any GPU: mma.sync, bf16 from 8.0 on; fp32 "
        "on CUDA cores; head dims to 256";
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {75, 80, 86, 89, 90, 100, 120};
    traits_.config_keys = PortableConfigKeys();
    traits_.config_examples = {"stages=2",  "loaders=2,stages=4", "tile_m=32,loaders=3",
                               "tile_m=96", "tile_m=160",         "tile_n=32",
                               "block=256"};
    traits_.tunable = {{"tile_m", {"96", "128", "160", "192", "224"}},
                       {"loaders", {"1", "2"}},
                       {"stages", {"2", "4", "6"}}};
    traits_.preference = 30;
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    if (absl::Status s = CheckDtypeAndPage(p); !s.ok()) return s;
    // Only products on tensor cores depend on it.
    const int code_capability = p.dtype == DType::kFloat32 || device.compute_capability < 80
                                    ? device.compute_capability
                                    : cuda_backend::CodeCapabilityOf(device);
    const absl::StatusOr<PortableOptions> options =
        PortableOptionsFor(p, device, code_capability, config);
    if (!options.ok()) return options.status();
    PortableCall prepared;
    prepared.grid = options->grid;
    prepared.block = options->block;
    prepared.element = device::ElementOf(p.dtype);
    return PreparedAs(
        /*workspace_bytes=*/0,
        [p, prepared, launcher = LauncherOf(options->tile), ordinal = device.device.ordinal](
            const AttentionTensors& t, const Launch& launch) {
          if (BlocksOf(prepared.grid) == 0) return absl::OkStatus();
          const cuda_backend::ScopedDevice current(ordinal);
          if (!current.status().ok()) return current.status();
          PortableCall call = prepared;
          call.arguments = device::ArgumentsOf(p, t);
          call.stream = static_cast<cudaStream_t>(launch.stream);
          return cuda_backend::ToStatus(launcher(call), "warp_specialized_portable");
        });
  }

 private:
  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(WarpSpecializedPortable);

}  // namespace
}  // namespace attnlab::warp_specialized
