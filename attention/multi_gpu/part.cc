#include "attention/multi_gpu/part.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/cuda/backend.h"
#include "attention/cuda/memory.h"

namespace attnlab::multi_gpu {
namespace {

absl::Status CheckOffsets(absl::string_view name, const LengthsView& offsets, int64_t b,
                          int64_t most) {
  if (offsets.data == nullptr || offsets.count != b + 1) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has ",
                                                   offsets.data == nullptr ? 0 : offsets.count,
                                                   " offsets, must have b + 1 = ", b + 1));
  }
  if (absl::Status s = cuda_backend::CheckHostAddress(offsets.data); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", s.message()));
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

int64_t BytesOfLse(const AttentionProblem& p) {
  return AlignedBytes(p.b * p.sq * p.hq * SizeOf(DType::kFloat32));
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

ConstTensorView SomeHeads(ConstTensorView view, int64_t begin, int64_t heads) {
  view.data = static_cast<const char*>(view.data) + begin * view.strides[2] * SizeOf(view.dtype);
  view.shape[2] = heads;
  return view;
}

bool IsDense(const ConstTensorView& t) {
  return t.strides[3] == 1 && t.strides[2] == t.shape[3] &&
         t.strides[1] == t.shape[2] * t.strides[2] &&
         (t.shape[0] == 1 || t.strides[0] == t.shape[1] * t.strides[1]);
}

TensorView Mutable(const ConstTensorView& view) {
  return {const_cast<void*>(view.data), view.dtype, view.device, view.shape, view.strides};
}

int64_t BytesOfPart(const AttentionProblem& p) {
  return BytesOfLse(p) + AlignedBytes(p.b * p.sq * p.hq * p.dv * SizeOf(p.ODType()));
}

AttentionTensors PartAt(void* data, const AttentionProblem& p, Device device) {
  AttentionTensors t;
  t.lse = LseView(static_cast<float*>(data), device, p.b, p.sq, p.hq);
  t.o = BshdView(static_cast<void*>(static_cast<char*>(data) + BytesOfLse(p)), p.ODType(), device,
                 p.b, p.sq, p.hq, p.dv);
  return t;
}

absl::Status CheckKind(absl::string_view who, const AttentionProblem& p, bool packed) {
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  std::string what;
  if (p.lens != Lengths::kFixed && !(packed && p.lens == Lengths::kPacked)) {
    what = packed ? "lens: is not fixed or packed" : "lens: is not fixed";
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
                       const AttentionTensors& mine, bool packed) {
  absl::Status s = CheckKind(who, p, packed);
  const Device there = mine.q.device;
  if (s.ok()) s = ValidateView("q", mine.q, {p.b, rows, p.hq, p.d}, p.dtype, there);
  if (s.ok()) s = ValidateView("k", mine.k, {p.b, keys, p.hkv, p.d}, p.dtype, there);
  if (s.ok()) s = ValidateView("v", mine.v, {p.b, keys, p.hkv, p.dv}, p.dtype, there);
  if (s.ok()) s = ValidateView("o", mine.o, {p.b, rows, p.hq, p.dv}, p.ODType(), there);
  if (s.ok() && mine.lse.data != nullptr) {
    s = ValidateView("lse", mine.lse, {p.b, rows, p.hq, 1}, DType::kFloat32, there);
  }
  return s.ok() ? ValidateOutputs(mine) : s;
}

absl::Status CheckDevice(Device device, const Communicator& c) {
  if (device.kind == DeviceKind::kCpu || device == c.device()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "q: on ", ToString(device), ", but the communicator is for ", ToString(c.device())));
}

}  // namespace attnlab::multi_gpu
