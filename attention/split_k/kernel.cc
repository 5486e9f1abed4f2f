// Split-K, or flash-decoding: for a short query over many keys there are too few query tiles to keep
// a GPU busy, so the keys of a tile are divided among blocks, and their parts are merged
// (Dao, Haziza, Massa, Sizov, "Flash-Decoding for long-context inference", 2023).
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
#include "attention/split_k/call.h"
#include "attention/split_k/options.h"
#include "attention/split_k/traffic.h"

namespace attnlab::split_k {
namespace {

using Launcher = cudaError_t (*)(const SplitCall&);

Launcher LauncherOf(const Options& options) {
  switch (options.tile.head_dim) {
    case 64:
      return options.tensor_cores ? LaunchTensorCores<64> : LaunchCudaCores<64>;
    case 128:
      return options.tensor_cores ? LaunchTensorCores<128> : LaunchCudaCores<128>;
    default:
      return options.tensor_cores ? LaunchTensorCores<256> : LaunchCudaCores<256>;
  }
}

class PreparedSplitK : public Prepared {
 public:
  PreparedSplitK(const AttentionProblem& p, const DeviceInfo& device, const Options& options)
      : problem_(p),
        ordinal_(device.device.ordinal),
        workspace_bytes_(options.WorkspaceBytes(p.dv)),
        launch_(LauncherOf(options)) {
    // The same for one query, and quicker to work out.
    if (p.sq <= 1 && p.mask.kind == Mask::Kind::kCausal) problem_.mask = Mask::None();
    call_.grid = options.grid;
    call_.element = device::ElementOf(p.dtype);
    call_.fp8_cache = p.KvDType() == DType::kFloat8E4M3;
    call_.workspace.rows = options.tile.rows;
    call_.workspace.dim = static_cast<int32_t>((p.dv + 3) / 4 * 4);
  }

  int64_t WorkspaceBytes() const override { return workspace_bytes_; }

  int64_t CounterBytes() const override {
    const int64_t tiles = int64_t{call_.grid.units} * call_.grid.tiles.Value();
    return workspace_bytes_ == 0 ? 0 : split_k::CounterBytes(tiles);
  }

  absl::Status Run(const AttentionTensors& t, const Launch& launch) const override {
    if (BlocksOf(call_.grid) == 0) return absl::OkStatus();
    const cuda_backend::ScopedDevice current(ordinal_);
    if (!current.status().ok()) return current.status();
    SplitCall call = call_;
    call.arguments = device::ArgumentsOf(problem_, t);
    call.stream = static_cast<cudaStream_t>(launch.stream);
    call.scales = {static_cast<const float*>(t.k_scale.data),
                   static_cast<const float*>(t.v_scale.data),
                   t.k_scale.strides[0],
                   t.k_scale.strides[2],
                   t.v_scale.strides[0],
                   t.v_scale.strides[2]};
    if (workspace_bytes_ > 0) {
      char* const counters = static_cast<char*>(launch.workspace.data);
      char* const states = counters + CounterBytes();
      char* const outputs = states + StateBytes(BlocksOf(call_.grid), call_.workspace.rows);
      call.workspace.counters = reinterpret_cast<unsigned long long*>(counters);
      call.workspace.states = reinterpret_cast<float*>(states);
      call.workspace.outputs = reinterpret_cast<float*>(outputs);
    }
    return cuda_backend::ToStatus(launch_(call), "split_k");
  }

 private:
  AttentionProblem problem_;
  const int ordinal_;
  const int64_t workspace_bytes_;
  SplitCall call_;
  const Launcher launch_;
};

class SplitKKernel : public Kernel {
 public:
  SplitKKernel() {
    traits_.name = "split_k";
    traits_.summary =
        "keys divided among blocks, then merged: for short queries; 16 bits on tensor cores, fp32 "
        "on CUDA cores; head dims to 256";
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {80, 86, 89, 90, 100, 120};
    traits_.config_keys = ConfigKeys();
    traits_.config_examples = {"k_splits=1", "k_splits=3", "batch_invariant=true"};
    traits_.tunable = {{"k_splits", {"1", "2", "4", "8", "16", "32", "64"}}};
    traits_.preference = 20;
  }

  const KernelTraits& traits() const override { return traits_; }

  int PreferenceFor(const AttentionProblem& p, const DeviceInfo& device) const override {
    return IsBestFor(p, device) ? 70 : traits_.preference;
  }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    const absl::StatusOr<Options> options = OptionsOf(p, device, config);
    if (!options.ok()) return options.status();
    return std::make_unique<const PreparedSplitK>(p, device, *options);
  }

  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                                          const LaunchConfig& config) const override {
    const absl::StatusOr<Options> options = OptionsOf(p, device, config);
    if (!options.ok()) return options.status();
    return split_k::ExpectedTraffic(p, device, *options);
  }

 private:
  static absl::StatusOr<Options> OptionsOf(const AttentionProblem& p, const DeviceInfo& device,
                                           const LaunchConfig& config) {
    if (absl::Status s = CheckDtypeAndPage(p, {KvForm::kFp8, KvForm::kPaged}); !s.ok()) return s;
    return OptionsFor(p, device, cuda_backend::CodeCapabilityOf(device), config);
  }

  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(SplitKKernel);

}  // namespace
}  // namespace attnlab::split_k
