#include "paged/shared_prefix/shared_prefix.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/mask.h"
#include "attention/core/tensor.h"
#include "attention/cuda/machine.h"
#include "attention/cuda/memory.h"
#include "attention/device/arguments.h"
#include "attention/device/arguments_of.h"
#include "attention/device/divisor.h"
#include "paged/shared_prefix/gpu.h"
#include "paged/shared_prefix/rows.h"

namespace attnlab::paged {
namespace {

// Chunks of a prefix have at least so many keys.
constexpr int64_t kChunkKeys = 256;
// Rows of the query tiles that the number of chunks is made for.
constexpr int64_t kTileRows = 128;

int64_t CeilDivide(int64_t x, int64_t by) { return (x + by - 1) / by; }

absl::Status Invalid(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

template <typename View>
View Rows(View view, int64_t first, int64_t count) {
  if (view.data == nullptr) return view;
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                  const char, char>;
  view.data = static_cast<Byte*>(view.data) + first * view.strides[0] * SizeOf(view.dtype);
  view.shape[0] = count;
  return view;
}

LengthsView Rows(const LengthsView& lengths, int64_t first, int64_t count) {
  if (lengths.data == nullptr) return lengths;
  return {lengths.data + first, count};
}

// The call for sequences [first, first + count).
AttentionTensors Rows(const AttentionTensors& t, int64_t first, int64_t count) {
  AttentionTensors rows = t;
  rows.q = Rows(t.q, first, count);
  rows.o = Rows(t.o, first, count);
  rows.lse = Rows(t.lse, first, count);
  rows.q_len = Rows(t.q_len, first, count);
  rows.kv_len = Rows(t.kv_len, first, count);
  rows.k_scale = Rows(t.k_scale, first, count);
  rows.v_scale = Rows(t.v_scale, first, count);
  rows.page_table.data += first * t.page_table.row_stride;
  rows.page_table.rows = count;
  return rows;
}

// Members of a prefix that are side by side.
struct Neighbours {
  int64_t first = 0, count = 0, pages = 0;
};

std::vector<Neighbours> RunsOf(absl::Span<const SharedPrefix> prefixes) {
  std::vector<Neighbours> runs;
  for (const SharedPrefix& prefix : prefixes) {
    const size_t before = runs.size();
    for (const int64_t member : prefix.members) {
      if (runs.size() > before && member == runs.back().first + runs.back().count) {
        ++runs.back().count;
      } else {
        runs.push_back({member, 1, prefix.pages});
      }
    }
  }
  std::sort(runs.begin(), runs.end(),
            [](const Neighbours& a, const Neighbours& b) { return a.first < b.first; });
  return runs;
}

// `tensor`: `view`, as device::ArgumentsOf() describes it.
PrefixRows RowsOf(const ConstTensorView& view, const device::Rows& tensor,
                  const LengthsView& q_len) {
  const auto size = [&](int axis) { return static_cast<uint32_t>(view.shape[axis]); };
  const uint32_t width = tensor.whole_chunks ? 16 / SizeOf(view.dtype) : 1;
  return {tensor,
          size(0),
          device::Divisor(size(1)),
          device::Divisor(size(2)),
          device::Divisor(size(3) / width),
          q_len.data};
}

struct Convert {
  template <typename T>
  static float ToFloat(T x) {
    return static_cast<float>(x);
  }
  template <typename T>
  static T FromFloat(float x) {
    return T(x);
  }
};

template <typename T>
void PrepareHere(const PrefixInputs& inputs) {
  for (uint32_t i = 0; i < inputs.rows.Pieces(); ++i) {
    if (inputs.rows.tensor.whole_chunks) {
      inputs.CopyPiece<T, 16 / sizeof(T)>(i);
    } else {
      inputs.CopyPiece<T, 1>(i);
    }
  }
  for (uint32_t i = 0; i < std::max(inputs.rows.count, inputs.chunks); ++i) inputs.SetLengths(i);
}

template <typename T>
void MergeHere(const PrefixMerge& merge) {
  for (uint32_t i = 0; i < merge.rows.Pieces(); ++i) {
    if (merge.rows.tensor.whole_chunks) {
      merge.MergePiece<T, 16 / sizeof(T), Convert>(i);
    } else {
      merge.MergePiece<T, 1, Convert>(i);
    }
  }
}

absl::Status Prepare(const PrefixInputs& inputs, DType dtype, Device device, void* stream) {
  if (device.kind == DeviceKind::kCuda) {
    return PrefixInputsOnGpu(device.ordinal, inputs, dtype, stream);
  }
  SizeOf(dtype) == 4 ? PrepareHere<uint32_t>(inputs) : PrepareHere<uint16_t>(inputs);
  return absl::OkStatus();
}

absl::Status Merge(const PrefixMerge& merge, DType dtype, Device device, void* stream) {
  if (device.kind == DeviceKind::kCuda) {
    return PrefixMergeOnGpu(device.ordinal, merge, dtype, stream);
  }
  if (dtype == DType::kFloat32) {
    MergeHere<float>(merge);
  } else if (dtype == DType::kFloat16) {
    MergeHere<Float16>(merge);
  } else {
    MergeHere<BFloat16>(merge);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedPrefixPlan> SharedPrefixPlan::Make(const AttentionProblem& problem,
                                                        Device device,
                                                        absl::Span<const SharedPrefix> prefixes) {
  if (absl::Status s = problem.Validate(); !s.ok()) return s;
  if (problem.page == 0) return Invalid("page", "0; K and V must be paged");
  if (problem.lens == Lengths::kPacked) return Invalid("lens", "packed; must be fixed or padded");
  if (problem.mask.kind == Mask::Kind::kSlidingWindow) {
    return Invalid("mask", "a sliding window does not see the whole prefix");
  }
  if (problem.dtype == DType::kFloat8E4M3) return Invalid("dtype", "fp8_e4m3 of Q");
  const absl::StatusOr<DeviceInfo> info = InfoOf(device);
  if (!info.ok()) return info.status();
  SharedPrefixPlan plan;
  plan.problem_ = problem;
  plan.device_ = *info;
  const std::vector<Neighbours> runs = RunsOf(prefixes);
  int64_t next = 0;
  for (const Neighbours& run : runs) {
    if (run.first < next || run.first + run.count > problem.b) {
      return Invalid(
          "prefixes",
          absl::StrCat("members ", run.first, " to ", run.first + run.count - 1,
                       " are of another prefix, or not of the ", problem.b, " sequences"));
    }
    if (run.pages < 0 || run.pages > (problem.skv - problem.sq) / problem.page) {
      return Invalid("prefixes", absl::StrCat(run.pages, " pages, of ", problem.skv, " keys with ",
                                              problem.sq, " of their own"));
    }
    // Nothing is shared by one, and without queries there is nothing to do.
    if (run.count < 2 || run.pages == 0 || problem.sq == 0) continue;
    if (absl::Status s = plan.AddGroup(next, run.first - next, 0); !s.ok()) return s;
    absl::Status s = plan.AddGroup(run.first, run.count, run.pages * problem.page);
    if (!s.ok()) return s;
    next = run.first + run.count;
  }
  if (absl::Status s = plan.AddGroup(next, problem.b - next, 0); !s.ok()) return s;
  return plan;
}

absl::Status SharedPrefixPlan::AddGroup(int64_t first, int64_t count, int64_t keys) {
  if (count == 0) return absl::OkStatus();
  const AttentionProblem& p = problem_;
  Group group;
  group.first = first;
  group.count = count;
  group.keys = keys;
  AttentionProblem own = p;
  own.b = count;
  own.skv = p.skv - keys;
  absl::StatusOr<Plan> own_plan = MakePlan(own, device_.device);
  if (!own_plan.ok()) return own_plan.status();
  group.own = *std::move(own_plan);
  int64_t scratch = group.own.workspace_bytes;
  int64_t bytes = 0;
  const auto place = [&](int64_t size) {
    const int64_t at = bytes;
    bytes += CeilDivide(size, kMemoryAlignment) * kMemoryAlignment;
    return at;
  };
  if (keys > 0) {
    const int64_t rows = count * p.sq;
    constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max() - 1024;
    if (rows > kMostElements / (p.hq * std::max(p.d, p.dv))) {
      return absl::UnimplementedError(absl::StrCat("prefixes: ", count, " members have more than ",
                                                   kMostElements, " elements of Q or O"));
    }
    // Of rows that do not fill a tile, it has those of all heads of a KV head.
    const int64_t pack = rows < kTileRows ? p.GroupSize() : 1;
    const int64_t tiles = p.hq / pack * CeilDivide(rows * pack, kTileRows);
    const int64_t wanted = std::clamp<int64_t>(device_.multiprocessors / tiles, 1,
                                               std::max<int64_t>(1, keys / kChunkKeys));
    group.chunk_pages = CeilDivide(keys / p.page, wanted);
    group.chunks = CeilDivide(keys / p.page, group.chunk_pages);
    AttentionProblem prefix = p;
    prefix.b = group.chunks;
    prefix.sq = rows;
    prefix.skv = group.chunk_pages * p.page;
    prefix.lens = keys == group.chunks * prefix.skv ? Lengths::kFixed : Lengths::kPadded;
    prefix.mask = Mask::None();
    absl::StatusOr<Plan> prefix_plan = MakePlan(prefix, device_.device);
    if (!prefix_plan.ok()) return prefix_plan.status();
    group.prefix = *std::move(prefix_plan);
    scratch = std::max(scratch, group.prefix.workspace_bytes);
    const int64_t heads = rows * p.hq, element = SizeOf(p.dtype);
    group.own_lengths = place(count * 4);
    group.chunk_lengths = place(group.chunks * 4);
    group.q = place(group.chunks * heads * p.d * element);
    group.o = place((group.chunks + 1) * heads * p.dv * element);
    group.lse = place((group.chunks + 1) * heads * 4);
  }
  group.scratch = place(scratch);
  workspace_bytes_ = std::max(workspace_bytes_, bytes);
  groups_.push_back(std::move(group));
  return absl::OkStatus();
}

absl::Status SharedPrefixPlan::Run(const AttentionTensors& t, Workspace workspace,
                                   void* stream) const {
  if (absl::Status s = ValidateTensors(problem_, t); !s.ok()) return s;
  if (t.q.device != device_.device) {
    return Invalid("q", absl::StrCat("on ", ToString(t.q.device), ", but the plan is for ",
                                     ToString(device_.device)));
  }
  if (workspace_bytes_ > 0) {
    if (workspace.data == nullptr || workspace.bytes < workspace_bytes_) {
      return Invalid("workspace", absl::StrCat(workspace.data == nullptr ? 0 : workspace.bytes,
                                               " bytes, but ", workspace_bytes_, " are needed"));
    }
    if (reinterpret_cast<uintptr_t>(workspace.data) % kMemoryAlignment != 0) {
      return Invalid("workspace", absl::StrCat("is not aligned to ", kMemoryAlignment));
    }
    absl::Status s = ValidateScratch(t, "workspace", workspace.data, workspace.bytes);
    if (!s.ok()) return s;
  }
  for (const Group& group : groups_) {
    absl::Status s = RunGroup(group, t, static_cast<char*>(workspace.data), stream);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status SharedPrefixPlan::RunGroup(const Group& group, const AttentionTensors& t,
                                        char* workspace, void* stream) const {
  const AttentionProblem& p = problem_;
  const Workspace scratch = {workspace + group.scratch,
                             std::max(group.own.workspace_bytes, group.prefix.workspace_bytes)};
  AttentionTensors own = Rows(t, group.first, group.count);
  if (group.keys == 0) return Forward(group.own, own, scratch, stream);

  const int64_t rows = group.count * p.sq;
  const auto at = [&](int64_t offset) { return static_cast<void*>(workspace + offset); };
  // Lengths that do not vary are those of the plan.
  const auto lengths = [&](const Plan& plan, int64_t offset) {
    return plan.problem.lens == Lengths::kFixed ? nullptr : static_cast<int32_t*>(at(offset));
  };
  const device::Arguments all = device::ArgumentsOf(p, own);
  PrefixInputs inputs;
  inputs.rows = RowsOf(own.q, all.q, own.q_len);
  inputs.copies = at(group.q);
  inputs.chunks = static_cast<uint32_t>(group.chunks);
  inputs.kv_len = own.kv_len.data;
  inputs.skv = p.skv;
  inputs.prefix_keys = group.keys;
  inputs.chunk_keys = group.chunk_pages * p.page;
  inputs.own_lengths = lengths(group.own, group.own_lengths);
  inputs.chunk_lengths = lengths(group.prefix, group.chunk_lengths);
  if (absl::Status s = Prepare(inputs, p.dtype, device_.device, stream); !s.ok()) return s;

  PrefixMerge merge;
  merge.rows = RowsOf(own.o, all.o, own.q_len);
  merge.lse = all.lse;
  merge.part_o = at(group.o);
  merge.part_lse = static_cast<const float*>(at(group.lse));
  merge.chunks = inputs.chunks;
  const auto parts = [&](DType dtype, int64_t offset, int64_t first, int64_t count, int64_t sq,
                         int64_t dim) {
    return BshdView(at(offset + first * rows * p.hq * dim * SizeOf(dtype)), dtype, device_.device,
                    count, sq, p.hq, dim);
  };

  AttentionTensors prefix = own;
  prefix.q = parts(p.dtype, group.q, 0, group.chunks, rows, p.d);
  prefix.o = parts(p.dtype, group.o, 0, group.chunks, rows, p.dv);
  prefix.lse = parts(DType::kFloat32, group.lse, 0, group.chunks, rows, 1);
  prefix.q_len = {};
  prefix.kv_len = {inputs.chunk_lengths, group.chunks};
  // A chunk's pages follow those of the chunk before, in the first member's row.
  prefix.page_table = {own.page_table.data, group.chunks, group.chunk_pages, group.chunk_pages};
  for (ConstTensorView* scale : {&prefix.k_scale, &prefix.v_scale}) {
    scale->shape[0] = scale->data == nullptr ? 0 : group.chunks;
    scale->strides[0] = 0;
  }
  if (absl::Status s = Forward(group.prefix, prefix, scratch, stream); !s.ok()) return s;

  own.kv_len = {inputs.own_lengths, group.count};
  own.page_table.data += group.keys / p.page;
  own.page_table.columns -= group.keys / p.page;
  own.o = parts(p.dtype, group.o, group.chunks, group.count, p.sq, p.dv);
  own.lse = parts(DType::kFloat32, group.lse, group.chunks, group.count, p.sq, 1);
  if (absl::Status s = Forward(group.own, own, scratch, stream); !s.ok()) return s;
  return Merge(merge, p.dtype, device_.device, stream);
}

}  // namespace attnlab::paged
