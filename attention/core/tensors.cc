#include "attention/core/tensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnlab {
namespace {

absl::Status Invalid(absl::string_view field, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
}

std::string Join(const std::array<int64_t, 4>& a) {
  return absl::StrCat("[", absl::StrJoin(a, ", "), "]");
}

// Does not use NumElements(): the number of packed tokens times heads has no limit, and a product
// that overflows may be zero.
template <typename Pointer>
bool IsEmpty(const BasicTensorView<Pointer>& view) {
  const auto& shape = view.shape;
  return shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
}

struct Axis {
  int64_t stride, extent;
};

// The axes whose extent is not 1, the shortest stride first.
struct Axes {
  explicit Axes(const ConstTensorView& view) {
    for (int i = 0; i < 4; ++i) {
      if (view.shape[i] == 1) continue;
      int at = count++;
      for (; at > 0 && axes[at - 1].stride > view.strides[i]; --at) axes[at] = axes[at - 1];
      axes[at] = {view.strides[i], view.shape[i]};
    }
  }

  std::array<Axis, 4> axes = {};
  int count = 0;
};

absl::Status CheckReach(absl::string_view name, const ConstTensorView& view) {
  const int64_t most = (int64_t{1} << 60) / SizeOf(view.dtype);
  int64_t reach = 0;
  for (int i = 0; i < 4; ++i) {
    int64_t step = 0;
    if (view.strides[i] < 0) {
      return Invalid(name, absl::StrCat("strides ", Join(view.strides), ": one is negative"));
    }
    if (__builtin_mul_overflow(view.strides[i], std::max<int64_t>(view.shape[i] - 1, 0), &step) ||
        __builtin_add_overflow(reach, step, &reach) || reach > most) {
      return absl::OutOfRangeError(absl::StrCat(name, ": strides ", Join(view.strides),
                                                " with shape ", Join(view.shape),
                                                " reach beyond 2^60 bytes"));
    }
  }
  return absl::OkStatus();
}

// Whether an element of the axes, starting at offset 0, has a byte in [low, high). Axes are in
// bytes, the shortest stride first.
bool Touches(absl::Span<const Axis> axes, int64_t element, int64_t low, int64_t high) {
  if (axes.empty()) return low < element && high > 0;
  const absl::Span<const Axis> inner = axes.first(axes.size() - 1);
  int64_t reach = element;  // the bytes that one step of the last axis spans
  for (const Axis& axis : inner) reach += axis.stride * (axis.extent - 1);
  const auto [stride, extent] = axes.back();
  if (stride == 0) return low < reach && high > 0;  // shorter strides are 0 too: one element
  // The steps whose [start, start + reach) overlaps [low, high).
  const int64_t first = low < reach ? 0 : (low - reach) / stride + 1;
  const int64_t last = high <= 0 ? -1 : std::min(extent - 1, (high - 1) / stride);
  if (first > last) return false;
  if (last * stride >= low) return true;  // an element begins there
  // More than one step spans `low`: their elements interleave and count as one block.
  if (first < last) return true;
  return Touches(inner, element, low - first * stride, high - first * stride);
}

// `to` - `from`, clamped to more than a tensor can reach.
int64_t Distance(uintptr_t from, uintptr_t to) {
  constexpr uintptr_t kFar = uintptr_t{1} << 61;
  return to >= from ? static_cast<int64_t>(std::min(to - from, kFar))
                    : -static_cast<int64_t>(std::min(from - to, kFar));
}

// Whether the view has an element in [data, data + bytes). The view must be valid.
bool Touches(const ConstTensorView& view, const void* data, int64_t bytes) {
  if (view.data == nullptr || IsEmpty(view) || bytes <= 0) return false;
  const int64_t element = SizeOf(view.dtype);
  const int64_t low =
      Distance(reinterpret_cast<uintptr_t>(view.data), reinterpret_cast<uintptr_t>(data));
  const int64_t high = low + std::min(bytes, int64_t{1} << 61);
  int64_t reach = 1;
  for (int i = 0; i < 4; ++i) reach += view.strides[i] * (view.shape[i] - 1);
  if (low >= reach * element || high <= 0) return false;
  Axes sorted(view);
  for (Axis& axis : sorted.axes) axis.stride *= element;
  return Touches(absl::MakeConstSpan(sorted.axes.data(), sorted.count), element, low, high);
}

absl::Status CheckCount(absl::string_view name, int64_t entries, int64_t count) {
  if (entries == count) return absl::OkStatus();
  return Invalid(name, absl::StrCat("has ", entries, entries == 1 ? " entry" : " entries",
                                    ", must have ", count));
}

// Checks `view` itself, and that it has `count` entries.
absl::Status CheckLengthsView(absl::string_view name, const LengthsView& view, int64_t count) {
  if (view.data == nullptr) return Invalid(name, "the data pointer is null");
  if (absl::Status s = CheckCount(name, view.count, count); !s.ok()) return s;
  if (reinterpret_cast<uintptr_t>(view.data) % alignof(int32_t) != 0) {
    return Invalid(name, absl::StrCat("address ", reinterpret_cast<uintptr_t>(view.data),
                                      " is not a multiple of 4"));
  }
  return absl::OkStatus();
}

absl::Status CheckAbsent(absl::string_view name, const LengthsView& view,
                         const AttentionProblem& p) {
  if (view.data == nullptr) return absl::OkStatus();
  if (p.lens == Lengths::kPacked && p.page != 0) {
    return Invalid(name, absl::StrCat("is given, but lens=packed with page=", p.page,
                                      " uses cu_seqlens_q and kv_len"));
  }
  return Invalid(name, p.lens == Lengths::kPacked ? "is given, but lens=packed uses cu_seqlens"
                       : p.lens == Lengths::kPadded
                           ? "is given, but lens=padded uses q_len and kv_len"
                           : "is given, but with lens=fixed all sequences have the same length");
}

absl::Status CheckOffsetsOnHost(absl::string_view name, const LengthsView& view, int64_t longest,
                                int64_t tokens) {
  if (view.data[0] != 0)
    return Invalid(name, absl::StrCat("begins with ", view.data[0], ", not 0"));
  for (int64_t i = 1; i < view.count; ++i) {
    const int64_t length = int64_t{view.data[i]} - view.data[i - 1];
    if (length < 0 || length > longest) {
      return Invalid(name, absl::StrCat("sequence ", i - 1, " has length ", length,
                                        ", which is not in 0..", longest));
    }
  }
  if (view.data[view.count - 1] > tokens) {
    return Invalid(name,
                   absl::StrCat("ends with ", view.data[view.count - 1], ", beyond the ", tokens,
                                tokens == 1 ? " token of the tensor" : " tokens of the tensor"));
  }
  return absl::OkStatus();
}

absl::Status ValidateLengths(const AttentionProblem& p, const AttentionTensors& t) {
  const bool on_host = t.q.device.kind == DeviceKind::kCpu;
  const bool packed = p.lens == Lengths::kPacked, padded = p.lens == Lengths::kPadded;
  const bool paged = p.page != 0;
  const struct {
    absl::string_view name;
    const LengthsView& view;
    int64_t longest, tokens;
    bool wanted;
  } kOffsets[] = {{"cu_seqlens_q", t.cu_seqlens_q, p.sq, t.q.shape[1], packed},
                  {"cu_seqlens_kv", t.cu_seqlens_kv, p.skv, t.k.shape[1], packed && !paged}};
  for (const auto& c : kOffsets) {
    absl::Status s =
        c.wanted ? CheckLengthsView(c.name, c.view, p.b + 1) : CheckAbsent(c.name, c.view, p);
    if (s.ok() && c.wanted && on_host) s = CheckOffsetsOnHost(c.name, c.view, c.longest, c.tokens);
    if (!s.ok()) return s;
  }
  const struct {
    absl::string_view name;
    const LengthsView& view;
    int64_t longest;
    bool allowed;
  } kLengths[] = {{"q_len", t.q_len, p.sq, padded},
                  {"kv_len", t.kv_len, p.skv, padded || (packed && paged)}};
  for (const auto& c : kLengths) {
    if (c.view.data == nullptr) continue;
    absl::Status s =
        c.allowed ? CheckLengthsView(c.name, c.view, p.b) : CheckAbsent(c.name, c.view, p);
    if (s.ok() && on_host) {
      s = CheckLengths(c.name, absl::MakeConstSpan(c.view.data, c.view.count), p.b, c.longest);
    }
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ValidatePageTable(const AttentionProblem& p, const AttentionTensors& t) {
  constexpr absl::string_view kName = "page_table";
  const PageTableView& table = t.page_table;
  if (p.page == 0) {
    if (table.data == nullptr) return absl::OkStatus();
    return Invalid(kName, "is given, but with page=0 K and V are not paged");
  }
  const int64_t wanted = p.Pages(p.skv);
  if (table.rows != p.b || table.columns < wanted || table.columns > AttentionProblem::kMaxExtent) {
    return Invalid(kName,
                   absl::StrCat("shape is [", table.rows, ", ", table.columns, "], must be [", p.b,
                                ", ", wanted, " to ", AttentionProblem::kMaxExtent, "]"));
  }
  if (wanted == 0) return absl::OkStatus();
  if (table.data == nullptr) return Invalid(kName, "the data pointer is null");
  if (reinterpret_cast<uintptr_t>(table.data) % alignof(int32_t) != 0) {
    return Invalid(kName, absl::StrCat("address ", reinterpret_cast<uintptr_t>(table.data),
                                       " is not a multiple of 4"));
  }
  if (table.row_stride < 0 || table.row_stride > (int64_t{1} << 58) / p.b) {
    return Invalid(kName, absl::StrCat("row stride ", table.row_stride, " is not in 0..",
                                       (int64_t{1} << 58) / p.b));
  }
  if (t.q.device.kind != DeviceKind::kCpu) return absl::OkStatus();
  for (int64_t i = 0; i < p.b; ++i) {
    const int32_t* const row = table.data + i * table.row_stride;
    const int64_t used = p.Pages(SequenceOf(p, t, i).kv_len);
    for (int64_t j = 0; j < used; ++j) {
      if (row[j] >= 0 && row[j] < t.k.shape[0]) continue;
      return Invalid(kName, absl::StrCat("entry [", i, ", ", j, "] is ", row[j],
                                         ", not one of the ", t.k.shape[0], " pages of k"));
    }
  }
  return absl::OkStatus();
}

// Those of blocks that have rows. NaN passes: Quantize() makes it from NaN.
absl::Status CheckScalesOnHost(const AttentionProblem& p, const AttentionTensors& t,
                               absl::string_view name, const ConstTensorView& scales,
                               int64_t Sequence::*length) {
  for (int64_t i = 0; i < p.b; ++i) {
    const int64_t rows = SequenceOf(p, t, i).*length;
    const int64_t blocks = rows == 0 ? 0 : p.ScaleBlocks(rows);
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t head = 0; head < scales.shape[2]; ++head) {
        const float scale =
            static_cast<const float*>(scales.data)[scales.Offset(i, block, head, 0)];
        if (!(scale <= 0)) continue;
        return Invalid(name, absl::StrCat("entry ", Join({i, block, head, 0}), " is ", scale,
                                          ", must be positive"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateScales(const AttentionProblem& p, const AttentionTensors& t) {
  const struct {
    absl::string_view name;
    const ConstTensorView& view;
    int64_t rows, heads;
    DType dtype;
    int64_t Sequence::*length;
  } kScales[] = {{"q_scale", t.q_scale, p.sq, p.hq, p.dtype, &Sequence::q_len},
                 {"k_scale", t.k_scale, p.skv, p.hkv, p.KvDType(), &Sequence::kv_len},
                 {"v_scale", t.v_scale, p.skv, p.hkv, p.VDType(), &Sequence::kv_len}};
  for (const auto& c : kScales) {
    if (c.view.data == nullptr) continue;
    if (!IsFp8(c.dtype)) {
      return Invalid(c.name,
                     absl::StrCat("is given, but what it scales is ", Name(c.dtype), ", not fp8"));
    }
    absl::Status s = ValidateView(c.name, c.view, {p.b, p.ScaleBlocks(c.rows), c.heads, 1},
                                  DType::kFloat32, t.q.device);
    if (s.ok() && t.q.device.kind == DeviceKind::kCpu) {
      s = CheckScalesOnHost(p, t, c.name, c.view, c.length);
    }
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateView(absl::string_view name, const ConstTensorView& view,
                          const std::array<int64_t, 4>& shape, DType dtype, Device device) {
  if (view.dtype != dtype) {
    return Invalid(name, absl::StrCat("dtype is ", Name(view.dtype), ", must be ", Name(dtype)));
  }
  if (view.shape != shape) {
    return Invalid(name, absl::StrCat("shape is ", Join(view.shape), ", must be ", Join(shape),
                                      " (batch, sequence, head, dim)"));
  }
  if (view.device != device) {
    return Invalid(name,
                   absl::StrCat("on ", ToString(view.device), ", but q is on ", ToString(device)));
  }
  if (IsEmpty(view)) return absl::OkStatus();
  if (view.data == nullptr) return Invalid(name, "the data pointer is null");
  if (reinterpret_cast<uintptr_t>(view.data) % SizeOf(dtype) != 0) {
    return Invalid(name, absl::StrCat("address ", reinterpret_cast<uintptr_t>(view.data),
                                      " is not a multiple of the element size ", SizeOf(dtype)));
  }
  if (view.shape[3] > 1 && view.strides[3] != 1) {
    return Invalid(name, absl::StrCat("stride ", view.strides[3], " of the dim axis is not 1"));
  }
  return CheckReach(name, view);
}

namespace {

// Q, K and V.
absl::Status ValidateQkv(const AttentionProblem& p, const AttentionTensors& t) {
  const bool packed = p.lens == Lengths::kPacked, paged = p.page != 0;
  const int64_t batch = packed ? 1 : p.b;
  // The number of packed tokens is free, because the offsets assign them; so is the page count.
  const int64_t q_rows = packed ? t.q.shape[1] : p.sq;
  const int64_t kv_batch = paged ? t.k.shape[0] : batch;
  const int64_t kv_rows = paged ? p.page : packed ? t.k.shape[1] : p.skv;
  const struct {
    absl::string_view name, what;
    int64_t count;
  } kCounts[] = {{"q", " tokens", q_rows}, {"k", " tokens", kv_rows}, {"k", " pages", kv_batch}};
  for (const auto& c : kCounts) {
    if (c.count >= 0 && c.count <= AttentionProblem::kMaxExtent) continue;
    return Invalid(c.name,
                   absl::StrCat(c.count, c.what, " are not in 0..", AttentionProblem::kMaxExtent));
  }
  const Device device = t.q.device;
  if (device.kind == DeviceKind::kCpu && device.ordinal != 0) {
    return Invalid("q", absl::StrCat("on CPU ", device.ordinal, "; there is only CPU 0"));
  }
  const auto check = [device](absl::string_view name, const ConstTensorView& view,
                              const std::array<int64_t, 4>& shape, DType dtype) {
    return ValidateView(name, view, shape, dtype, device);
  };
  absl::Status s = check("q", t.q, {batch, q_rows, p.hq, p.d}, p.dtype);
  if (s.ok()) s = check("k", t.k, {kv_batch, kv_rows, p.hkv, p.d}, p.KvDType());
  if (s.ok()) s = check("v", t.v, {kv_batch, kv_rows, p.hkv, p.dv}, p.VDType());
  return s;
}

// What else a kernel reads.
absl::Status ValidateTheOthers(const AttentionProblem& p, const AttentionTensors& t) {
  absl::Status s = ValidateLengths(p, t);
  if (s.ok()) s = ValidatePageTable(p, t);
  if (s.ok()) s = ValidateScales(p, t);
  return s;
}

}  // namespace

absl::Status ValidateInputs(const AttentionProblem& p, const AttentionTensors& t) {
  const absl::Status s = ValidateQkv(p, t);
  return s.ok() ? ValidateTheOthers(p, t) : s;
}

absl::Status ValidateTensors(const AttentionProblem& p, const AttentionTensors& t) {
  if (absl::Status s = ValidateQkv(p, t); !s.ok()) return s;
  const bool with_lse = t.lse.data != nullptr;
  // Those of Q.
  const int64_t batch = t.q.shape[0], rows = t.q.shape[1];
  absl::Status s = ValidateView("o", t.o, {batch, rows, p.hq, p.dv}, p.ODType(), t.q.device);
  if (s.ok() && with_lse) {
    s = ValidateView("lse", t.lse, {batch, rows, p.hq, 1}, DType::kFloat32, t.q.device);
  }
  if (s.ok()) s = ValidateTheOthers(p, t);
  return s.ok() ? ValidateOutputs(t) : s;
}

absl::Status ValidateDistinct(absl::string_view name, const TensorView& view) {
  if (IsEmpty(view)) return absl::OkStatus();
  const Axes sorted(view);
  int64_t reach = 0;  // the largest offset so far
  for (int i = 0; i < sorted.count; ++i) {
    const auto [stride, extent] = sorted.axes[i];
    if (stride <= reach) {
      return Invalid(
          name,
          absl::StrCat(
              "strides ", Join(view.strides), " with shape ", Join(view.shape),
              " may make elements overlap: sorted, each must exceed the reach of those below it"));
    }
    reach += stride * (extent - 1);
  }
  return absl::OkStatus();
}

absl::Status ValidateOutputs(const AttentionTensors& t) {
  const bool with_lse = t.lse.data != nullptr;
  absl::Status s = ValidateDistinct("o", t.o);
  if (s.ok() && with_lse) s = ValidateDistinct("lse", t.lse);
  if (!s.ok()) return s;
  if (!IsEmpty(t.o)) {
    if (with_lse && t.lse.data == t.o.data) return Invalid("lse", "shares its address with o");
    const std::pair<absl::string_view, const void*> kInputs[] = {
        {"q", t.q.data},
        {"k", t.k.data},
        {"v", t.v.data},
        {"q_scale", t.q_scale.data},
        {"k_scale", t.k_scale.data},
        {"v_scale", t.v_scale.data},
        {"page_table", t.page_table.data},
        {"cu_seqlens_q", t.cu_seqlens_q.data},
        {"cu_seqlens_kv", t.cu_seqlens_kv.data},
        {"q_len", t.q_len.data},
        {"kv_len", t.kv_len.data}};
    for (const auto& [name, input] : kInputs) {
      if (input == nullptr || (t.o.data != input && t.lse.data != input)) continue;
      return Invalid(t.o.data == input ? "o" : "lse",
                     absl::StrCat("shares its address with the input ", name));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateRows(const AttentionProblem& p, const AttentionTensors& t,
                          absl::string_view name, const TensorView& view, int64_t columns) {
  const std::array<int64_t, 4> shape = {t.o.shape[0], t.o.shape[1], p.hq, columns};
  absl::Status s = ValidateView(name, view, shape, DType::kFloat32, t.q.device);
  return s.ok() ? ValidateDistinct(name, view) : s;
}

absl::Status ValidateScratch(absl::string_view view_name, const ConstTensorView& view,
                             absl::string_view name, const void* scratch, int64_t bytes) {
  if (!Touches(view, scratch, bytes)) return absl::OkStatus();
  return Invalid(
      name, absl::StrCat(bytes, " bytes at 0x", absl::Hex(reinterpret_cast<uintptr_t>(scratch)),
                         " share memory with ", view_name, ", which begins at 0x",
                         absl::Hex(reinterpret_cast<uintptr_t>(view.data))));
}

absl::Status ValidateScratch(const AttentionTensors& t, absl::string_view name, const void* scratch,
                             int64_t bytes) {
  // int32 is passed as fp32: only the element size of a view matters here.
  static_assert(sizeof(int32_t) == sizeof(float));
  const auto check = [&](absl::string_view view_name, const ConstTensorView& view) {
    return ValidateScratch(view_name, view, name, scratch, bytes);
  };
  const auto check_int32 = [&](absl::string_view view_name, const int32_t* data, int64_t rows,
                               int64_t columns, int64_t row_stride) {
    if (data == nullptr) return absl::OkStatus();
    return check(view_name,
                 {data, DType::kFloat32, t.q.device, {1, 1, rows, columns}, {0, 0, row_stride, 1}});
  };
  const auto check_lengths = [&](absl::string_view view_name, const LengthsView& view) {
    return check_int32(view_name, view.data, 1, view.count, 0);
  };
  const PageTableView& table = t.page_table;
  absl::Status s = check("q", t.q);
  if (s.ok()) s = check("k", t.k);
  if (s.ok()) s = check("v", t.v);
  if (s.ok()) s = check("o", t.o);
  if (s.ok()) s = check("lse", t.lse);
  if (s.ok()) s = check_lengths("cu_seqlens_q", t.cu_seqlens_q);
  if (s.ok()) s = check_lengths("cu_seqlens_kv", t.cu_seqlens_kv);
  if (s.ok()) s = check_lengths("q_len", t.q_len);
  if (s.ok()) s = check_lengths("kv_len", t.kv_len);
  if (s.ok()) {
    s = check_int32("page_table", table.data, table.rows, table.columns, table.row_stride);
  }
  if (s.ok()) s = check("q_scale", t.q_scale);
  if (s.ok()) s = check("k_scale", t.k_scale);
  if (s.ok()) s = check("v_scale", t.v_scale);
  return s;
}

absl::Status CheckLengths(absl::string_view name, absl::Span<const int32_t> lengths, int64_t count,
                          int64_t longest) {
  absl::Status s = CheckCount(name, static_cast<int64_t>(lengths.size()), count);
  if (!s.ok()) return s;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > longest) {
      return Invalid(
          name, absl::StrCat("entry ", i, " is ", lengths[i], ", which is not in 0..", longest));
    }
  }
  return absl::OkStatus();
}

Sequence SequenceOf(const AttentionProblem& p, const AttentionTensors& t, int64_t i) {
  switch (p.lens) {
    case Lengths::kPacked: {
      const int32_t* q = t.cu_seqlens_q.data;
      if (p.page != 0) {
        return {0, q[i], int64_t{q[i + 1]} - q[i],
                i, 0,    t.kv_len.data == nullptr ? p.skv : t.kv_len.data[i]};
      }
      const int32_t* kv = t.cu_seqlens_kv.data;
      return {0, q[i], int64_t{q[i + 1]} - q[i], 0, kv[i], int64_t{kv[i + 1]} - kv[i]};
    }
    case Lengths::kPadded:
      return {i, 0, t.q_len.data == nullptr ? p.sq : t.q_len.data[i],
              i, 0, t.kv_len.data == nullptr ? p.skv : t.kv_len.data[i]};
    case Lengths::kFixed:
      break;
  }
  return {i, 0, p.sq, i, 0, p.skv};
}

}  // namespace attnlab
