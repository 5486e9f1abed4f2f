#include "attention/multi_gpu/part.h"

#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"

namespace attnlab::multi_gpu {
namespace {

absl::Status CheckOffsets(absl::string_view name, const LengthsView& offsets, int64_t b,
                          int64_t most) {
  if (offsets.data == nullptr || offsets.count != b + 1) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has ",
                                                   offsets.data == nullptr ? 0 : offsets.count,
                                                   " offsets, must have b + 1 = ", b + 1));
  }
  if (offsets.data[0] != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "[0]: is ", offsets.data[0], ", must be 0"));
  }
  for (int64_t i = 1; i <= b; ++i) {
    const int64_t length = int64_t{offsets.data[i]} - offsets.data[i - 1];
    if (length >= 0 && length <= most) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, "[", i, "]: a sequence of ", length, " is not in 0..", most));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Sequence>> SequencesOf(const AttentionProblem& p,
                                                  const AttentionTensors& t) {
  std::vector<Sequence> sequences;
  if (p.lens != Lengths::kPacked) {
    sequences.push_back({{0, p.sq}, {0, p.skv}});
    return sequences;
  }
  absl::Status s = CheckOffsets("cu_seqlens_q", t.cu_seqlens_q, p.b, p.sq);
  if (s.ok()) s = CheckOffsets("cu_seqlens_kv", t.cu_seqlens_kv, p.b, p.skv);
  if (!s.ok()) return s;
  const int32_t *q = t.cu_seqlens_q.data, *kv = t.cu_seqlens_kv.data;
  for (int64_t i = 0; i < p.b; ++i) sequences.push_back({{q[i], q[i + 1]}, {kv[i], kv[i + 1]}});
  return sequences;
}

ConstTensorView SomeRows(ConstTensorView view, int64_t begin, int64_t rows) {
  view.data = static_cast<const char*>(view.data) + begin * view.strides[1] * SizeOf(view.dtype);
  view.shape[1] = rows;
  return view;
}

void CopyElements(const ConstTensorView& from, const TensorView& to) {
  const int64_t size = SizeOf(from.dtype), bytes = from.shape[3] * size;
  for (int64_t b = 0; b < from.shape[0]; ++b) {
    for (int64_t row = 0; row < from.shape[1]; ++row) {
      for (int64_t head = 0; head < from.shape[2]; ++head) {
        std::memcpy(static_cast<char*>(to.data) + to.Offset(b, row, head, 0) * size,
                    static_cast<const char*>(from.data) + from.Offset(b, row, head, 0) * size,
                    bytes);
      }
    }
  }
}

absl::Status CheckKind(absl::string_view who, const AttentionProblem& p,
                       const AttentionTensors& mine, Supported supported) {
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  const bool on_gpu = mine.q.device.kind != DeviceKind::kCpu;
  std::string what;
  if (on_gpu && !supported.gpu) {
    what = absl::StrCat("q: on ", ToString(mine.q.device), ", must be in host memory");
  } else if (p.lens != Lengths::kFixed &&
             !(supported.packed && !on_gpu && p.lens == Lengths::kPacked)) {
    what = "lens: is not fixed";
    if (supported.packed) what += on_gpu ? ", on a GPU" : " or packed";
  } else if (p.page != 0) {
    what = absl::StrCat("page: is ", p.page, ", must be 0");
  } else if (p.dtype == DType::kFloat8E4M3 || p.KvDType() != p.dtype) {
    what = "dtype: is fp8";
  } else {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(what, ", in ", who, " of ", p.ToString()));
}

absl::Status CheckPart(absl::string_view who, const AttentionProblem& p, int64_t rows, int64_t keys,
                       const AttentionTensors& mine, Supported supported) {
  absl::Status s = CheckKind(who, p, mine, supported);
  const Device there = mine.q.device;
  if (s.ok()) s = ValidateView("q", mine.q, {p.b, rows, p.hq, p.d}, p.dtype, there);
  if (s.ok()) s = ValidateView("k", mine.k, {p.b, keys, p.hkv, p.d}, p.dtype, there);
  if (s.ok()) s = ValidateView("v", mine.v, {p.b, keys, p.hkv, p.dv}, p.dtype, there);
  if (s.ok()) s = ValidateView("o", mine.o, {p.b, rows, p.hq, p.dv}, p.ODType(), there);
  if (s.ok() && mine.lse.data != nullptr) {
    s = ValidateView("lse", mine.lse, {p.b, rows, p.hq, 1}, DType::kFloat32, there);
  }
  return s;
}

absl::Status CheckDevice(Device device, const Communicator& c) {
  if (device.kind == DeviceKind::kCpu || device == c.device()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "q: on ", ToString(device), ", but the communicator is for ", ToString(c.device())));
}

absl::Status Merged::Reset(int64_t b, int64_t rows, int64_t heads, int64_t dv) {
  rows_ = rows, heads_ = heads, dv_ = dv;
  try {
    states_.assign(b * rows * heads, {});
    sums_.assign(b * rows * heads * dv, 0.0f);
  } catch (const std::exception&) {  // bad_alloc, or length_error
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", b * rows * heads * dv, " elements of O in fp32"));
  }
  return absl::OkStatus();
}

void Merged::Add(const ConstTensorView& o, const ConstTensorView& lse, int64_t first_row) {
  for (int64_t b = 0; b < o.shape[0]; ++b) {
    for (int64_t row = 0; row < o.shape[1]; ++row) {
      for (int64_t head = 0; head < heads_; ++head) {
        const int64_t at = IndexOf(b, first_row + row, head), from = o.Offset(b, row, head, 0);
        const float part = LoadElement(lse.data, DType::kFloat32, lse.Offset(b, row, head, 0));
        const auto f = states_[at].Merge(device::OnlineSoftmax::OfLse(part));
        float* const sum = &sums_[at * dv_];
        for (int64_t i = 0; i < dv_; ++i) {
          sum[i] = f.mine * sum[i] + f.parts * LoadElement(o.data, o.dtype, from + i);
        }
      }
    }
  }
}

void Merged::Store(const TensorView& o, const TensorView& lse) const {
  for (int64_t b = 0; b < o.shape[0]; ++b) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t head = 0; head < heads_; ++head) {
        const int64_t at = IndexOf(b, row, head), to = o.Offset(b, row, head, 0);
        const float factor = states_[at].Inverse();
        for (int64_t i = 0; i < dv_; ++i) {
          StoreElement(o.data, o.dtype, to + i, sums_[at * dv_ + i] * factor);
        }
        if (lse.data == nullptr) continue;
        StoreElement(lse.data, DType::kFloat32, lse.Offset(b, row, head, 0), states_[at].Lse());
      }
    }
  }
}

}  // namespace attnlab::multi_gpu
