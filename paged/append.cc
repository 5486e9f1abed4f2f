#include "paged/append.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/core/dtype.h"
#include "attention/core/parallel.h"
#include "attention/cuda/machine.h"
#include "attention/device/arguments.h"
#include "attention/device/arguments_of.h"
#include "attention/device/divisor.h"
#include "paged/append_rows.h"
#include "paged/gpu.h"

namespace attnlab::paged {
namespace {

absl::Status Invalid(absl::string_view field, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
}

absl::Status Validate(const AttentionProblem& p, const AttentionTensors& t, const NewTokens& n) {
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  if (p.page == 0) return Invalid("page", "0; there are no pages to append to");
  if (p.dtype == DType::kFloat8E4M3) {
    return absl::UnimplementedError("dtype: fp8_e4m3 is not one of fp32, fp16, bf16");
  }
  if (absl::Status s = ValidateTensors(p, t); !s.ok()) return s;
  std::array<int64_t, 4> shape = t.q.shape;
  shape[2] = p.hkv;
  absl::Status s = ValidateView("new k", n.k, shape, p.dtype, t.q.device);
  shape[3] = p.dv;
  if (s.ok()) s = ValidateView("new v", n.v, shape, p.dtype, t.q.device);
  if (s.ok()) s = ValidateRotary(p, n.rotary, t.q.device);
  if (s.ok() && n.q.data != nullptr) {
    if (n.rotary.table.data == nullptr) return Invalid("new q", "is given without a rotary table");
    s = ValidateView("new q", n.q, t.q.shape, p.dtype, t.q.device);
    // Rows are read while others are written.
    if (s.ok() && n.q.data == t.q.data && n.q.strides != t.q.strides) {
      s = Invalid("new q", "is the memory of q, but has other strides");
    }
  }
  if (!s.ok() || t.q.device.kind != DeviceKind::kCpu) return s;
  for (int64_t i = 0; i < p.b; ++i) {
    const Sequence q = SequenceOf(p, t, i);
    if (q.kv_len >= q.q_len) continue;
    return Invalid("kv_len", absl::StrCat("sequence ", i, " has ", q.kv_len,
                                          " tokens, fewer than its ", q.q_len, " new ones"));
  }
  return absl::OkStatus();
}

AppendStream StreamOf(const ConstTensorView& from, const ConstTensorView& to, bool to_pages) {
  AppendStream s;
  s.from = from.data;
  s.from_batch = from.strides[0];
  s.from_token = from.strides[1];
  s.from_head = from.shape[2] == 1 ? 0 : from.strides[2];  // of one head, it may be any number
  s.to = const_cast<void*>(to.data);
  s.to_batch = to.strides[0];
  s.to_token = to.strides[1];
  s.to_head = to.shape[2] == 1 ? 0 : to.strides[2];
  s.to_pages = to_pages;
  s.heads = static_cast<int32_t>(from.shape[2]);
  s.dim = static_cast<int32_t>(from.shape[3]);
  return s;
}

// Whether the rows can be moved in pieces of `width` elements.
bool IsWide(const ConstTensorView& view, int64_t width) {
  const int64_t bytes = width * SizeOf(view.dtype);
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0 && view.shape[3] % width == 0 &&
         view.strides[0] % width == 0 && view.strides[1] % width == 0 &&
         view.strides[2] % width == 0;
}

// Host elements, as PieceMover converts them.
struct Convert {
  template <typename T>
  static float ToFloat(T x) {
    return static_cast<float>(x);
  }
  template <typename T, int kWidth>
  static void FromFloats(const float (&x)[kWidth], T (&to)[kWidth]) {
    for (int i = 0; i < kWidth; ++i) to[i] = T(x[i]);
  }
};

// Moves the rows of a token of all heads.
template <int kWidth, typename In, typename Out>
void MoveRows(const AppendArguments& a, const AppendStream& s, const AppendPlace& place,
              const In* from, Out* to) {
  if (std::is_same_v<In, Out> && !s.rotates) {
    for (int32_t head = 0; head < s.heads; ++head) {
      std::memcpy(to + head * s.to_head, from + head * s.from_head, s.dim * sizeof(In));
    }
    return;
  }
  for (int32_t index = 0; index < s.dim / kWidth; ++index) {
    PieceMover<kWidth, In, Out, Convert> piece(s, a.rotary, index);
    if (piece.IsSecond()) continue;
    piece.LoadAngles(a.rotary, place.position);
    for (int32_t head = 0; head < s.heads; ++head) {
      piece.Store(piece.Load(from + head * s.from_head), ScaleOf(s, place, head),
                  to + head * s.to_head);
    }
  }
}

template <int kWidth, typename In, typename Out>
void MoveToken(const AppendArguments& a, int64_t token, const AppendPlace& place) {
  const int32_t entry = EntryOf(a, place);
  for (int n = 0; n < a.count; ++n) {
    const AppendStream& s = a.streams[n];
    const int64_t to = ToOf(a, s, token, place, entry);
    if (to < 0) return;
    const In* const from =
        static_cast<const In*>(s.from) + OffsetOf(a, token, s.from_batch, s.from_token);
    if (s.to_pages) {
      MoveRows<kWidth>(a, s, place, from, static_cast<Out*>(s.to) + to);
    } else {
      MoveRows<kWidth>(a, s, place, from, static_cast<In*>(s.to) + to);
    }
  }
}

// Below so many elements, waking threads takes longer than the work.
constexpr int64_t kSerialElements = int64_t{1} << 16;

template <typename In, typename Out>
void AppendOnCpu(const AppendArguments& a, bool wide) {
  int64_t elements = 0;
  for (const AppendStream& s : a.streams) elements += a.tokens * s.heads * s.dim;
  const int threads = elements < kSerialElements ? 1 : CpuInfo().threads;
  ParallelFor(a.b, threads, [&](int64_t sequence, int) {
    const device::Span rows = a.q_sequences[sequence];
    const int64_t first =
        a.q_sequences.offsets != nullptr ? rows.begin : sequence * a.by_sq.Value();
    const int64_t length = a.kv_lengths == nullptr ? a.skv : a.kv_lengths[sequence];
    for (int64_t j = 0; j < rows.length; ++j) {
      const AppendPlace place = PlaceOf(a, sequence, length, rows.length - j);
      if (wide) {
        MoveToken<16 / sizeof(In), In, Out>(a, first + j, place);
      } else {
        MoveToken<1, In, Out>(a, first + j, place);
      }
    }
  });
}

}  // namespace

absl::Status Append(const AttentionProblem& p, const AttentionTensors& t, const NewTokens& n,
                    void* stream) {
  if (absl::Status s = Validate(p, t, n); !s.ok()) return s;
  AppendArguments a;
  a.streams[0] = StreamOf(n.k, t.k, /*to_pages=*/true);
  a.streams[1] = StreamOf(n.v, t.v, /*to_pages=*/true);
  a.streams[0].rotates = n.rotary.table.data != nullptr;
  const ConstTensorView* const scales[] = {&t.k_scale, &t.v_scale};
  for (int i = 0; i < 2; ++i) {
    a.streams[i].scales = static_cast<const float*>(scales[i]->data);
    a.streams[i].scale_batch = scales[i]->strides[0];
    a.streams[i].scale_head = scales[i]->strides[2];
  }
  const int64_t width = 16 / SizeOf(p.dtype);
  bool wide = IsWide(n.k, width) && IsWide(n.v, width) && IsWide(t.k, width) && IsWide(t.v, width);
  if (n.rotary.table.data != nullptr) {
    a.rotary.table = static_cast<const float*>(n.rotary.table.data);
    a.rotary.position_stride = n.rotary.table.strides[1];
    a.rotary.positions = n.rotary.table.shape[1];
    a.rotary.dim = static_cast<int32_t>(n.rotary.table.shape[3]);
    a.rotary.interleaved = n.rotary.interleaved;
    wide = wide && a.rotary.dim / 2 % width == 0 && IsWide(n.rotary.table, width / 2);
    if (n.q.data != nullptr) {
      a.streams[2] = StreamOf(n.q, t.q, /*to_pages=*/false);
      a.streams[2].rotates = true;
      a.count = 3;
      wide = wide && IsWide(n.q, width) && IsWide(t.q, width);
    }
  }
  // To fp8, a piece of twice the width makes a store of 16 bytes.
  const bool narrows = wide && SizeOf(p.KvDType()) < SizeOf(p.dtype);
  a.streams[0].doubles =
      narrows && !a.streams[0].rotates && IsWide(n.k, 2 * width) && IsWide(t.k, 2 * width);
  a.streams[1].doubles = narrows && IsWide(n.v, 2 * width) && IsWide(t.v, 2 * width);
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  for (int n = 0; n < a.count; ++n) {
    AppendStream& s = a.streams[n];
    const auto piece = static_cast<int32_t>(wide ? width : 1);
    s.moved_with = s.rotates && !a.rotary.interleaved ? a.rotary.dim / 2 / piece : 0;
    const int32_t pieces = s.dim / (s.doubles ? 2 * piece : piece) - s.moved_with;
    s.by_pieces = device::Divisor(static_cast<uint32_t>(std::max(1, pieces)));
    if (s.heads > kMost / std::max(1, pieces)) {
      constexpr absl::string_view kNames[] = {"new k", "new v", "new q"};
      return Invalid(kNames[n], absl::StrCat(s.heads, " heads of ", pieces, " pieces, above ",
                                             kMost, " in all"));
    }
  }
  const device::Arguments arguments = device::ArgumentsOf(p, t);
  a.q_sequences = arguments.q_sequences;
  a.kv_lengths = arguments.kv_sequences.lengths;
  a.skv = arguments.kv_sequences.longest;
  a.pages = arguments.pages;
  a.columns = t.page_table.columns;
  a.b = p.b;
  a.tokens = p.lens == Lengths::kPacked ? t.q.shape[1] : p.b * p.sq;
  if (a.tokens > kMost) return Invalid("q", absl::StrCat(a.tokens, " rows, above ", kMost));
  if (a.tokens == 0) return absl::OkStatus();
  a.by_sq =
      device::Divisor(p.lens == Lengths::kPacked ? uint32_t{1} << 31 : static_cast<uint32_t>(p.sq));
  if (t.q.device.kind == DeviceKind::kCuda) {
    return AppendOnGpu(t.q.device.ordinal, a, p.dtype, p.KvDType(), wide, stream);
  }
  const bool fp8 = p.KvDType() == DType::kFloat8E4M3;
  switch (p.dtype) {
    case DType::kFloat32:
      AppendOnCpu<float, float>(a, wide);
      break;
    case DType::kFloat16:
      fp8 ? AppendOnCpu<Float16, Float8E4M3>(a, wide) : AppendOnCpu<Float16, Float16>(a, wide);
      break;
    case DType::kBFloat16:
      fp8 ? AppendOnCpu<BFloat16, Float8E4M3>(a, wide) : AppendOnCpu<BFloat16, BFloat16>(a, wide);
      break;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      break;  // declined above
  }
  return absl::OkStatus();
}

}  // namespace attnlab::paged
