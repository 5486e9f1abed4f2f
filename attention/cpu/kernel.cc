#include "attention/cpu/kernel.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "attention/core/kernel.h"
#include "attention/core/mask.h"
#include "attention/core/parallel.h"
#include "attention/core/registry.h"
#include "attention/cpu/schedule.h"
#include "attention/cpu/tile.h"
#include "attention/cuda/memory.h"

namespace attnlab::cpu {
namespace {

// The parts of the workspace: scratch per thread, states of chunks, offsets of items.
struct Layout {
  int64_t scratch = 0;  // bytes per thread
  int64_t partials = 0, offsets = 0, total = 0;
  int64_t slot_floats = 0;

  Layout(const AttentionProblem& p, const Options& options, const Schedule& schedule) {
    scratch = AlignedBytes(TileScratchBytes(schedule.tile_q(), options.tile_kv, p.d, p.dv));
    slot_floats = PartialFloats(schedule.slot_rows(), p.dv);
    partials = options.threads * scratch;
    offsets = partials +
              AlignedBytes(schedule.slots() * slot_floats * static_cast<int64_t>(sizeof(float)));
    total = offsets + AlignedBytes(schedule.OffsetCount() * static_cast<int64_t>(sizeof(int64_t)));
  }
};

template <typename Pointer>
Pointer At(const BasicTensorView<Pointer>& view, int64_t batch, int64_t row, int64_t head) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return static_cast<Byte*>(view.data) + view.Offset(batch, row, head, 0) * SizeOf(view.dtype);
}

TileTask TaskOf(const AttentionProblem& p, const AttentionTensors& t, const Options& options,
                const Schedule& schedule, const Item& item) {
  const Sequence s = SequenceOf(p, t, item.sequence);
  const int64_t group = p.GroupSize();
  const int64_t head = item.kv_head * group;
  TileTask task;
  task.dtype = p.dtype;
  task.kv_dtype = p.KvDType();
  task.e5m2_v = p.VDType() == DType::kFloat8E5M2;
  task.o_dtype = p.ODType();
  task.q = At(t.q, s.q_batch, s.q_begin, head);
  task.q_row_stride = t.q.strides[1];
  task.q_head_stride = t.q.strides[2];
  // With pages, the tile finds them.
  const KeyPlace first = p.page == 0 ? PlaceOf(p, t, s, 0) : KeyPlace{/*batch=*/0, /*row=*/0};
  const auto kv = [&](const ConstTensorView& view) {
    return KvRows{At(view, first.batch, first.row, item.kv_head), view.strides[1], view.strides[0]};
  };
  task.k = kv(t.k);
  task.v = kv(t.v);
  if (p.page != 0) {
    task.pages = t.page_table.data + s.kv_batch * t.page_table.row_stride;
    while (int64_t{1} << task.page_bits < p.page) ++task.page_bits;
  }
  task.o = At(t.o, s.q_batch, s.q_begin, head);
  task.o_row_stride = t.o.strides[1];
  task.o_head_stride = t.o.strides[2];
  if (t.lse.data != nullptr) {
    task.lse = static_cast<float*>(At(t.lse, s.q_batch, s.q_begin, head));
    task.lse_row_stride = t.lse.strides[1];
    task.lse_head_stride = t.lse.strides[2];
  }
  task.d = p.d;
  task.dv = p.dv;
  task.group = group;
  task.q_len = s.q_len;
  task.kv_len = s.kv_len;
  task.mask = p.mask;
  const auto scales = [&](const ConstTensorView& view, int64_t first_head) -> BlockScales {
    if (view.data == nullptr) return {};
    return {static_cast<const float*>(At(view, item.sequence, 0, first_head)), view.strides[1],
            view.strides[2], p.scale_block};
  };
  task.scale = p.Scale();
  task.q_scales = scales(t.q_scale, head);
  if (p.scale_block == 0) {
    task.scale *= ScaleOf(p, t.k_scale, item.sequence, item.kv_head);
    task.v_scale = ScaleOf(p, t.v_scale, item.sequence, item.kv_head);
  } else {
    task.k_scales = scales(t.k_scale, item.kv_head);
    task.v_scales = scales(t.v_scale, item.kv_head);
  }
  task.softcap = p.softcap;
  task.row_begin = item.row_begin;
  task.row_end = item.row_end;
  task.kv_begin = item.kv_begin;
  task.kv_end = item.kv_end;
  task.tile_q = schedule.tile_q();
  task.tile_kv = options.tile_kv;
  return task;
}

class PreparedCpu : public Prepared {
 public:
  PreparedCpu(const AttentionProblem& problem, const Options& options)
      : problem_(problem),
        options_(options),
        schedule_(problem_, options_),
        layout_(problem_, options_, schedule_) {}

  int64_t WorkspaceBytes() const override { return layout_.total; }

  absl::Status Run(const AttentionTensors& t, const Launch& launch) const override {
    char* const memory = static_cast<char*>(launch.workspace.data);
    float* const partials = reinterpret_cast<float*>(memory + layout_.partials);
    int64_t* const offsets = reinterpret_cast<int64_t*>(memory + layout_.offsets);

    const int64_t items = schedule_.Count(t, offsets);
    ParallelFor(items, options_.threads, [&](int64_t index, int worker) {
      const Item item = schedule_.ItemAt(t, offsets, index);
      TileTask task = TaskOf(problem_, t, options_, schedule_, item);
      if (item.slot >= 0) task.partial = partials + item.slot * layout_.slot_floats;
      RunTile(task, memory + worker * layout_.scratch);
    });
    if (schedule_.max_chunks() == 1) return absl::OkStatus();

    // The first item of each tile merges its chunks.
    ParallelFor(items, options_.threads, [&](int64_t index, int worker) {
      const Item item = schedule_.ItemAt(t, offsets, index);
      if (item.slot < 0 || item.kv_begin != 0) return;
      MergeChunks(TaskOf(problem_, t, options_, schedule_, item), schedule_.chunk(),
                  partials + item.slot * layout_.slot_floats, layout_.slot_floats,
                  memory + worker * layout_.scratch);
    });
    return absl::OkStatus();
  }

 private:
  const AttentionProblem problem_;
  const Options options_;
  const Schedule schedule_;
  const Layout layout_;
};

}  // namespace

absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& p, const DeviceInfo& device,
                                        const LaunchConfig& config) {
  const absl::StatusOr<Options> options = OptionsFor(p, device, config);
  if (!options.ok()) return options.status();
  const Schedule schedule(p, *options);

  Traffic traffic = CompulsoryTraffic(p);
  const int64_t kv_row = p.d * SizeOf(p.KvDType()) + p.dv * SizeOf(p.VDType());
  const int64_t at_a_time = std::min<int64_t>(options->threads, p.b * p.hkv);
  if (schedule.max_tiles() > 1 && at_a_time * p.skv * kv_row > device.last_level_cache_bytes) {
    const int64_t group = p.GroupSize();
    double keys = 0;  // keys that the tiles of one head read, beyond those that must be read once
    for (int64_t tile = 0; tile < schedule.max_tiles(); ++tile) {
      const int64_t begin = tile * schedule.tile_q() / group;
      const int64_t end = std::min(p.sq, ((tile + 1) * schedule.tile_q() + group - 1) / group);
      const KvRange range = VisibleKvOfRows(p.mask, begin, end, p.sq, p.skv);
      keys += static_cast<double>(range.end - range.begin);
    }
    const KvRange once = VisibleKvOfRows(p.mask, 0, p.sq, p.sq, p.skv);
    keys -= static_cast<double>(once.end - once.begin);
    traffic.bytes_read += WholeBytes(static_cast<double>(p.b * p.hkv * kv_row) * keys);
  }
  const int64_t states = schedule.slots() * PartialFloats(schedule.slot_rows(), p.dv) *
                         static_cast<int64_t>(sizeof(float));
  traffic.bytes_read += states;
  traffic.bytes_written += states;
  return traffic;
}

namespace {

class CpuKernel : public Kernel {
 public:
  CpuKernel() {
    traits_.name = "cpu";
    traits_.summary = absl::StrCat("tiled online softmax on threads and SIMD (", TargetName(), ")");
    traits_.device = DeviceKind::kCpu;
    traits_.config_keys = {
        "threads: threads to use [those of the device, fewer for little work]",
        "tile_q: query rows per tile, 1 to 4096 [64 to 256]",
        "tile_kv: keys per tile, 1 to 4096 [96]",
    };
    traits_.tunable = {{"tile_q", {"32", "64", "128", "256"}},
                       {"tile_kv", {"64", "96", "128", "192", "256"}}};
    traits_.preference = 100;
  }

  const KernelTraits& traits() const override { return traits_; }

  absl::StatusOr<std::unique_ptr<const Prepared>> Prepare(
      const AttentionProblem& problem, const DeviceInfo& device,
      const LaunchConfig& config) const override {
    const absl::StatusOr<Options> options = OptionsFor(problem, device, config);
    if (!options.ok()) return options.status();
    return std::make_unique<const PreparedCpu>(problem, *options);
  }
  absl::StatusOr<Traffic> ExpectedTraffic(const AttentionProblem& problem, const DeviceInfo& device,
                                          const LaunchConfig& config) const override {
    return cpu::ExpectedTraffic(problem, device, config);
  }

 private:
  KernelTraits traits_;
};

ATTNLAB_REGISTER_KERNEL(CpuKernel);

}  // namespace
}  // namespace attnlab::cpu
