// FA1: the structure of the first FlashAttention (Dao et al., "FlashAttention: Fast and
// Memory-Efficient Exact Attention with IO-Awareness", 2022). One thread block per (sequence, head)
// walks the query tiles. For each of them K and V stream through shared memory, and the online
// softmax keeps S and P out of global memory. Arithmetic is fp32 on CUDA cores.
//
// Its time goes into multiply-adds if there are as many (sequence, head) pairs as multiprocessors.
// With fewer pairs, the other multiprocessors are idle, which is what FA2 changed. docs/fa1.md says
// more.
#include "attention/core/kernel.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/registry.h"
#include "attention/core/supports.h"
#include "attention/cuda/call.h"
#include "attention/device/arguments_of.h"
#include "attention/device/element_of.h"
#include "attention/fa1/forward.h"
#include "attention/fa1/options.h"
#include "attention/fa1/traffic.h"

namespace attnlab::fa1 {
namespace {

absl::StatusOr<device::CudaCoreTile> Choose(const AttentionProblem& p, const DeviceInfo& device,
                                            const LaunchConfig& config) {
  if (absl::Status s = CheckDtypeAndPage(p); !s.ok()) return s;
  return TileFor(p, device, config);
}

class Fa1Kernel : public Kernel {
 public:
  Fa1Kernel() {
    traits_.name = "fa1";
    traits_.summary =
        "one block per (sequence, head) walks the query tiles; online softmax, fp32 on CUDA cores, "
        "head dims to 256";
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {75, 80, 86, 89, 90, 100, 120};
    traits_.config_keys = ConfigKeys();
    // The small tiles, which short queries get by default.
    traits_.config_examples = {"tile_q=64", "tile_q=64,tile_kv=32", "tile_q=32,tile_kv=32",
                               "tile_q=32,tile_kv=16", "tile_q=16,tile_kv=16"};
    traits_.tunable = {{"tile_q", {"16", "32", "64", "128", "256"}}};
    traits_.preference = 5;
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    const absl::StatusOr<device::CudaCoreTile> tile = Choose(p, device, config);
    if (!tile.ok()) return tile.status();
    return PreparedAs(
        /*workspace_bytes=*/0, [p, tile = *tile, ordinal = device.device.ordinal](
                                   const AttentionTensors& t, const Launch& launch) {
          if (p.sq == 0) return absl::OkStatus();
          const cuda_backend::ScopedDevice current(ordinal);
          if (!current.status().ok()) return current.status();
          return cuda_backend::ToStatus(
              fa1::Forward(device::ArgumentsOf(p, t), tile, device::ElementOf(p.dtype),
                           static_cast<cudaStream_t>(launch.stream)),
              "fa1");
        });
  }

  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                                          const LaunchConfig& config) const override {
    const absl::StatusOr<device::CudaCoreTile> tile = Choose(p, device, config);
    if (!tile.ok()) return tile.status();
    return fa1::ExpectedTraffic(p, device, tile->rows);
  }

 private:
  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(Fa1Kernel);

}  // namespace
}  // namespace attnlab::fa1
