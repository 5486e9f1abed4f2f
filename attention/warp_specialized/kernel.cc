// Warp specialisation: the warps of a block have different work. One copies Q, K and V to shared
// memory, through TMA; others multiply and compute the softmax. The idea is that of
// FlashAttention-3 (Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
// Low-precision", 2024). This kernel is for Hopper (sm_90a): its wgmma multiplies at the full rate
// of the tensor cores, directly from shared memory and asynchronously, so that the softmax of one
// tile runs beside the products of another.
#include "attention/core/kernel.h"

#include <array>
#include <cstdint>
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
#include "attention/device/hopper/tensor_map.h"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/options.h"

namespace attnlab::warp_specialized {
namespace {

using Launcher = cudaError_t (*)(const HopperCall&);

template <typename... Shapes>
constexpr std::array<Launcher, sizeof...(Shapes)> LaunchersOf(Shapes...) {
  return {LaunchHopper<Shapes>...};
}
constexpr auto kLaunchers = WithHopperShapes([](auto... shapes) { return LaunchersOf(shapes...); });

// Scales of Q, K or V as device code finds them.
Scales ScalesOf(const AttentionProblem& p, const ConstTensorView& view) {
  Scales scales;
  scales.data = static_cast<const float*>(view.data);
  scales.sequence = view.strides[0];
  scales.block = p.scale_block == 0 ? 0 : view.strides[1];
  scales.head = view.strides[2];
  scales.shift = p.scale_block == 128 ? 7 : 6;
  return scales;
}

class PreparedHopper : public Prepared {
 public:
  PreparedHopper(const AttentionProblem& p, const DeviceInfo& device, const Options& options)
      : problem_(p), ordinal_(device.device.ordinal), options_(options) {
    HopperArguments& h = call_.arguments;
    h.grid = options.grid;
    h.pack = device::Divisor(static_cast<uint32_t>(options.grid.pack));
    h.box_keys = options.box_keys;
    h.rows_beyond = p.lens != Lengths::kFixed || (p.page != 0 && p.skv % p.page != 0);
    h.o_is_fp16 = p.ODType() == DType::kFloat16;
    call_.element = device::ElementOf(p.dtype);
    h.shares = options.shares;
    h.key_tiles = options.key_tiles;
    call_.keys = static_cast<int>(p.skv), call_.kv_heads = static_cast<int>(p.hkv);
    call_.blocks = options.blocks;
    call_.pairs = options.pairs;
    launch_ = kLaunchers[options.shape];
  }

  int64_t WorkspaceBytes() const override { return TransposedOffset() + options_.transposed_bytes; }
  int64_t CounterBytes() const override {
    const int64_t warps = options_.HasShares() ? options_.blocks * (options_.tile.rows / 16) : 0;
    return (warps + options_.dynamic) * sizeof(unsigned long long);
  }

  bool CanAdd() const override { return options_.tile.adds; }

  absl::Status Accepts(const AttentionTensors& t) const override {
    absl::Status s = device::CheckTensorMap("q", t.q);
    if (s.ok()) s = device::CheckTensorMap("k", t.k);
    if (s.ok()) s = device::CheckTensorMap("v", t.v);
    return s;
  }

  absl::Status Run(const AttentionTensors& t, const Launch& launch) const override {
    if (call_.blocks == 0) return absl::OkStatus();
    const absl::StatusOr<CUtensorMap> q =
        device::MakeTensorMap("q", t.q, options_.tile.rows, options_.grid.pack);
    if (!q.ok()) return q.status();
    const absl::StatusOr<CUtensorMap> k =
        device::MakeTensorMap("k", t.k, options_.box_keys, /*pack=*/1);
    if (!k.ok()) return k.status();
    char* const scratch = static_cast<char*>(launch.workspace.data);
    HopperCall call = call_;
    absl::StatusOr<CUtensorMap> v;
    if (options_.tile.pretransposed) {
      call.transposed = scratch + TransposedOffset();
      // Of each head and tile of keys, dv rows of 128 bytes.
      const ConstTensorView transposed =
          BhsdView(static_cast<const void*>(call.transposed), t.v.dtype, t.v.device, problem_.b,
                   problem_.dv, problem_.hkv * options_.key_tiles, options_.tile.keys);
      v = device::MakeTensorMap("v", transposed,
                                options_.tile.head_dim_v / (options_.pairs ? 2 : 1),
                                /*pack=*/1);
    } else {
      v = device::MakeTensorMap("v", t.v, options_.box_keys, /*pack=*/1);
    }
    if (!v.ok()) return v.status();
    call.arguments.q = *q;
    call.arguments.k = *k;
    call.arguments.v = *v;
    call.arguments.a = device::ArgumentsOf(problem_, t);
    if (problem_.dtype == DType::kFloat8E4M3) {
      call.arguments.q_scales = ScalesOf(problem_, t.q_scale);
      call.arguments.k_scales = ScalesOf(problem_, t.k_scale);
      call.arguments.v_scales = ScalesOf(problem_, t.v_scale);
    }
    if (options_.stores_by_tma && device::CheckTensorMap("o", t.o).ok()) {
      const absl::StatusOr<CUtensorMap> o =
          device::MakeTensorMap("o", t.o, kRowsOfAWarp, options_.grid.pack);
      if (!o.ok()) return o.status();
      call.arguments.o = *o;
      call.stores_by_tma = true;
    }
    if (launch.adds) {
      const absl::StatusOr<CUtensorMap> o =
          device::MakeTensorMap("o", t.o, options_.tile.rows, options_.grid.pack);
      if (!o.ok()) return o.status();
      call.arguments.o = *o;
      call.arguments.adds = true;
      call.early = launch.may_start_early;
    }
    call.stream = static_cast<cudaStream_t>(launch.stream);
    const cuda_backend::ScopedDevice current(ordinal_);
    if (!current.status().ok()) return current.status();
    auto* const counters = reinterpret_cast<unsigned long long*>(scratch);
    if (options_.dynamic) call.arguments.taken = counters;
    if (options_.HasShares()) call.arguments.left = counters + options_.dynamic;
    call.arguments.aside = reinterpret_cast<uint4*>(scratch + AsideOffset());
    call.arguments.parts = reinterpret_cast<float*>(scratch + PartsOffset());
    return cuda_backend::ToStatus(launch_(call), "warp_specialized");
  }

 private:
  // Behind the counters. A workspace begins at a multiple of 256 bytes.
  int64_t AsideOffset() const {
    return options_.tile.workspace_bytes > 0 || options_.HasShares()
               ? (CounterBytes() + 255) / 256 * 256
               : CounterBytes();
  }
  int64_t PartsOffset() const {
    return AsideOffset() + options_.blocks * options_.tile.workspace_bytes;
  }
  int64_t TransposedOffset() const {
    const int64_t end =
        PartsOffset() +
        (options_.HasShares() ? int64_t{options_.blocks} * options_.tile.part_bytes : 0);
    return options_.tile.pretransposed ? (end + 255) / 256 * 256 : end;
  }

  const AttentionProblem problem_;
  const int ordinal_;
  const Options options_;
  HopperCall call_;
  Launcher launch_;
};

class WarpSpecializedKernel : public Kernel {
 public:
  WarpSpecializedKernel() {
    traits_.name = "warp_specialized";
    traits_.summary =
        "producer warps copy, consumer warps compute; Hopper's TMA and wgmma, fp16, bf16 and fp8, "
        "head dims to 256, pages of 8 keys and more";
    traits_.device = DeviceKind::kCuda;
    traits_.compute_capabilities = {90};
    traits_.needs_aligned_rows = true;
    traits_.config_keys = {
        "pairs: true, if two blocks are to share copies of K and V; or false [true for long "
        "contexts of head dims above 96, where it is faster]",
        "shares: true, if blocks are to share the last query tiles, so that all end at the same "
        "time; or false, and the bits of a sequence do not depend on the rest of the batch [true "
        "without mask and lengths, where it is faster]",
        "pretransposed: true, if a kernel of its own is to transpose V of fp8; or false, and each "
        "query tile does "
        "it in shared memory [true for many queries of head dims above 64, where it is faster]"};
    traits_.config_examples = {"pairs=true", "shares=true", "pretransposed=true",
                               "pairs=true,pretransposed=true"};
    traits_.variants = {"pairs=true"};
    traits_.preference = 60;
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& p, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    if (absl::Status s = CheckDtypeAndPage(p, {KvForm::kPaged, KvForm::kFp8Q, KvForm::kE5m2V});
        !s.ok())
      return s;
    const absl::StatusOr<Options> options =
        OptionsFor(p, device, cuda_backend::CodeCapabilityOf(device), config);
    if (!options.ok()) return options.status();
    return std::make_unique<const PreparedHopper>(p, device, *options);
  }

  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                                          const LaunchConfig& config) const override {
    if (absl::Status s = CheckDtypeAndPage(p, {KvForm::kPaged, KvForm::kFp8Q, KvForm::kE5m2V});
        !s.ok())
      return s;
    const absl::StatusOr<Options> options =
        OptionsFor(p, device, cuda_backend::CodeCapabilityOf(device), config);
    if (!options.ok()) return options.status();
    // Pairs: half as many at a time, with tiles of twice the rows.
    Traffic traffic = device::GridTraffic(p, device, options->grid, options->tile.rows,
                                          /*blocks_a_multiprocessor=*/1);
    if (options->tile.pretransposed) {
      traffic.bytes_read += p.b * p.hkv * p.skv * p.dv;
      traffic.bytes_written += options->transposed_bytes;
    }
    // Parts are read while L2 still has them.
    if (options->HasShares()) {
      traffic.bytes_written += int64_t{options->blocks} * options->tile.part_bytes;
    }
    return traffic;
  }

 private:
  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(WarpSpecializedKernel);

}  // namespace
}  // namespace attnlab::warp_specialized
