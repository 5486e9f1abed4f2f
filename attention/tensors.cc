#include "attention/tensors.h"

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

// Not by NumElements(): nothing limits the tokens of packed tensors times their heads, and a
// product that overflows may be zero.
bool IsEmpty(const ConstTensorView& view) {
  return std::count(view.shape.begin(), view.shape.end(), 0) > 0;
}

// Elements may lie in any order in memory, but no two at one address.
absl::Status CheckDistinct(absl::string_view name, const TensorView& view) {
  if (IsEmpty(view)) return absl::OkStatus();
  struct Axis {
    int64_t stride, extent;
  };
  std::array<Axis, 4> axes;
  for (int i = 0; i < 4; ++i) axes[i] = {view.strides[i], view.shape[i]};
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  int64_t reach = 0;  // the largest offset so far
  for (const Axis& axis : axes) {
    if (axis.extent <= 1) continue;
    if (axis.stride <= reach) {
      return Invalid(
          name,
          absl::StrCat(
              "strides ", Join(view.strides), " with shape ", Join(view.shape),
              " may make elements overlap: sorted, each must exceed the reach of those below it"));
    }
    reach += axis.stride * (axis.extent - 1);
  }
  return absl::OkStatus();
}

absl::Status CheckReach(absl::string_view name, const ConstTensorView& view) {
  int64_t reach = 0;
  for (int i = 0; i < 4; ++i) {
    int64_t step = 0;
    if (view.strides[i] < 0) {
      return Invalid(name, absl::StrCat("strides ", Join(view.strides), " have a negative one"));
    }
    if (__builtin_mul_overflow(view.strides[i], std::max<int64_t>(view.shape[i] - 1, 0), &step) ||
        __builtin_add_overflow(reach, step, &reach) ||
        reach > (int64_t{1} << 60) / SizeOf(view.dtype)) {
      return absl::OutOfRangeError(absl::StrCat(name, ": strides ", Join(view.strides),
                                                " with shape ", Join(view.shape),
                                                " reach beyond 2^60 bytes"));
    }
  }
  return absl::OkStatus();
}

// A view's axes that move, in bytes, the longest stride first.
struct ByteAxis {
  int64_t stride, extent;
};

// Whether an element of the axes, from offset 0, has a byte in [low, high).
bool Touches(absl::Span<const ByteAxis> axes, int64_t element, int64_t low, int64_t high) {
  if (axes.empty()) return low < element && high > 0;
  const absl::Span<const ByteAxis> inner = axes.subspan(1);
  int64_t reach = element;  // of what one step of the first axis holds
  for (const ByteAxis& axis : inner) reach += axis.stride * (axis.extent - 1);
  const auto [stride, extent] = axes[0];
  // The steps whose [start, start + reach) meets [low, high).
  const int64_t first = low < reach ? 0 : (low - reach) / stride + 1;
  const int64_t last = high <= 0 ? -1 : std::min(extent - 1, (high - 1) / stride);
  if (first > last) return false;
  if (last * stride >= low) return true;  // an element begins there
  // More than one step reaches over `low`: their elements interleave.
  if (first < last) return true;
  return Touches(inner, element, low - first * stride, high - first * stride);
}

// `to` - `from`, no further than a tensor can reach.
int64_t Distance(uintptr_t from, uintptr_t to) {
  constexpr uintptr_t kFar = uintptr_t{1} << 61;
  return to >= from ? static_cast<int64_t>(std::min(to - from, kFar))
                    : -static_cast<int64_t>(std::min(from - to, kFar));
}

// Whether the view has an element in the `bytes` from `data` on. The view was checked.
bool Touches(const ConstTensorView& view, const void* data, int64_t bytes) {
  if (view.data == nullptr || IsEmpty(view) || bytes <= 0) return false;
  const int64_t element = SizeOf(view.dtype);
  std::array<ByteAxis, 4> axes;
  int count = 0;
  for (int i = 0; i < 4; ++i) {
    // A stride of zero broadcasts: the elements are the same.
    if (view.shape[i] == 1 || view.strides[i] == 0) continue;
    axes[count++] = {view.strides[i] * element, view.shape[i]};
  }
  std::sort(axes.begin(), axes.begin() + count,
            [](const ByteAxis& a, const ByteAxis& b) { return a.stride > b.stride; });
  const int64_t low =
      Distance(reinterpret_cast<uintptr_t>(view.data), reinterpret_cast<uintptr_t>(data));
  return Touches(absl::MakeConstSpan(axes.data(), count), element, low,
                 low + std::min(bytes, int64_t{1} << 61));
}

absl::Status CheckView(absl::string_view name, const ConstTensorView& view,
                       const std::array<int64_t, 4>& shape, DType dtype, Device device) {
  if (view.dtype != dtype) {
    return Invalid(name,
                   absl::StrCat("dtype ", Name(view.dtype), " where ", Name(dtype), " is wanted"));
  }
  if (view.shape != shape) {
    return Invalid(name, absl::StrCat("shape ", Join(view.shape), " where ", Join(shape),
                                      " (batch, sequence, head, dim) is wanted"));
  }
  if (view.device != device) {
    return Invalid(name,
                   absl::StrCat("on ", ToString(view.device), " where q is on ", ToString(device)));
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

absl::Status CheckCount(absl::string_view name, int64_t entries, int64_t count) {
  if (entries == count) return absl::OkStatus();
  return Invalid(name, absl::StrCat(entries, " entries where ", count, " are wanted"));
}

// Checks `view` in place, and that it has `count` entries.
absl::Status CheckLengthsView(absl::string_view name, const LengthsView& view, int64_t count) {
  if (view.data == nullptr) return Invalid(name, "the data pointer is null");
  if (absl::Status s = CheckCount(name, view.count, count); !s.ok()) return s;
  if (reinterpret_cast<uintptr_t>(view.data) % alignof(int32_t) != 0) {
    return Invalid(name, absl::StrCat("address ", reinterpret_cast<uintptr_t>(view.data),
                                      " is not a multiple of 4"));
  }
  return absl::OkStatus();
}

absl::Status CheckAbsent(absl::string_view name, const LengthsView& view, Lengths lens) {
  if (view.data == nullptr) return absl::OkStatus();
  return Invalid(name, lens == Lengths::kPacked ? "is given, but with lens=packed cu_seqlens count"
                       : lens == Lengths::kPadded
                           ? "is given, but with lens=padded q_len and kv_len count"
                           : "is given, but with lens=fixed all sequences have one length");
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
    return Invalid(name, absl::StrCat("ends with ", view.data[view.count - 1], ", beyond the ",
                                      tokens, " tokens of the tensor"));
  }
  return absl::OkStatus();
}

absl::Status ValidateLengths(const AttentionProblem& p, const AttentionTensors& t) {
  const bool on_host = t.q.device.kind == DeviceKind::kCpu;
  const struct {
    absl::string_view name;
    const LengthsView& view;
    int64_t longest, tokens;
  } kOffsets[] = {{"cu_seqlens_q", t.cu_seqlens_q, p.sq, t.q.shape[1]},
                  {"cu_seqlens_kv", t.cu_seqlens_kv, p.skv, t.k.shape[1]}};
  for (const auto& c : kOffsets) {
    absl::Status s = p.lens != Lengths::kPacked ? CheckAbsent(c.name, c.view, p.lens)
                                                : CheckLengthsView(c.name, c.view, p.b + 1);
    if (s.ok() && p.lens == Lengths::kPacked && on_host) {
      s = CheckOffsetsOnHost(c.name, c.view, c.longest, c.tokens);
    }
    if (!s.ok()) return s;
  }
  const struct {
    absl::string_view name;
    const LengthsView& view;
    int64_t longest;
  } kLengths[] = {{"q_len", t.q_len, p.sq}, {"kv_len", t.kv_len, p.skv}};
  for (const auto& c : kLengths) {
    if (p.lens != Lengths::kPadded) {
      if (absl::Status s = CheckAbsent(c.name, c.view, p.lens); !s.ok()) return s;
    } else if (c.view.data != nullptr) {
      absl::Status s = CheckLengthsView(c.name, c.view, p.b);
      if (s.ok() && on_host) {
        s = CheckLengths(c.name, absl::MakeConstSpan(c.view.data, c.view.count), p.b, c.longest);
      }
      if (!s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTensors(const AttentionProblem& p, const AttentionTensors& t) {
  const bool packed = p.lens == Lengths::kPacked;
  const int64_t batch = packed ? 1 : p.b;
  // Packed tokens can be any number: the offsets say which belong to whom.
  const int64_t q_rows = packed ? t.q.shape[1] : p.sq;
  const int64_t kv_rows = packed ? t.k.shape[1] : p.skv;
  if (packed) {
    for (int64_t rows : {q_rows, kv_rows}) {
      if (rows < 0 || rows > AttentionProblem::kMaxExtent) {
        return Invalid(rows == q_rows ? "q" : "k",
                       absl::StrCat(rows, " tokens are not in 0..", AttentionProblem::kMaxExtent));
      }
    }
  }
  const Device device = t.q.device;
  if (device.kind == DeviceKind::kCpu && device.ordinal != 0) {
    return Invalid("q", absl::StrCat("on CPU ", device.ordinal, "; there is only CPU 0"));
  }
  const bool with_lse = t.lse.data != nullptr;
  const struct {
    absl::string_view name;
    ConstTensorView view;
    std::array<int64_t, 4> shape;
    DType dtype;
    bool wanted;
  } kViews[] = {
      {"q", t.q, {batch, q_rows, p.hq, p.d}, p.dtype, true},
      {"k", t.k, {batch, kv_rows, p.hkv, p.d}, p.dtype, true},
      {"v", t.v, {batch, kv_rows, p.hkv, p.dv}, p.dtype, true},
      {"o", t.o, {batch, q_rows, p.hq, p.dv}, p.dtype, true},
      {"lse", t.lse, {batch, q_rows, p.hq, 1}, DType::kFloat32, with_lse},
  };
  for (const auto& c : kViews) {
    if (!c.wanted) continue;
    if (absl::Status s = CheckView(c.name, c.view, c.shape, c.dtype, device); !s.ok()) return s;
  }
  if (absl::Status s = CheckDistinct("o", t.o); !s.ok()) return s;
  if (with_lse) {
    if (absl::Status s = CheckDistinct("lse", t.lse); !s.ok()) return s;
  }
  if (with_lse && t.lse.data == t.o.data && !IsEmpty(t.o)) {
    return Invalid("lse", "shares its address with o");
  }
  const std::pair<absl::string_view, const void*> kInputs[] = {
      {"q", t.q.data}, {"k", t.k.data}, {"v", t.v.data}};
  for (const auto& [name, input] : kInputs) {
    if (input == nullptr || IsEmpty(t.o)) continue;
    const std::string message = absl::StrCat("shares its address with the input ", name);
    if (t.o.data == input) return Invalid("o", message);
    if (t.lse.data == input) return Invalid("lse", message);
  }
  return ValidateLengths(p, t);
}

absl::Status ValidateRows(const AttentionProblem& p, const AttentionTensors& t,
                          absl::string_view name, const TensorView& view, int64_t columns) {
  const std::array<int64_t, 4> shape = {t.o.shape[0], t.o.shape[1], p.hq, columns};
  absl::Status s = CheckView(name, view, shape, DType::kFloat32, t.q.device);
  return s.ok() ? CheckDistinct(name, view) : s;
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
  // Lengths are int32; of a view, what counts here is the size of its elements.
  const auto lengths = [&t](const LengthsView& view) -> ConstTensorView {
    static_assert(sizeof(int32_t) == sizeof(float));
    return {view.data, DType::kFloat32, t.q.device, {1, 1, 1, view.count}, {0, 0, 0, 1}};
  };
  const std::pair<absl::string_view, ConstTensorView> kViews[] = {
      {"q", t.q},
      {"k", t.k},
      {"v", t.v},
      {"o", t.o},
      {"lse", t.lse},
      {"cu_seqlens_q", lengths(t.cu_seqlens_q)},
      {"cu_seqlens_kv", lengths(t.cu_seqlens_kv)},
      {"q_len", lengths(t.q_len)},
      {"kv_len", lengths(t.kv_len)},
  };
  for (const auto& [view_name, view] : kViews) {
    absl::Status s = ValidateScratch(view_name, view, name, scratch, bytes);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
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
