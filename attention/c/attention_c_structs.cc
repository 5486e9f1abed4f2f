// Converts the structs of attention_c.h to C++ types, and errors to codes.
#include <exception>
#include <new>
#include <optional>
#include <string>

#include "attention/c/attention_c_internal.h"

namespace attnlab::c {
namespace {

std::string& Message() {
  static thread_local std::string message;
  return message;
}

constexpr int32_t kDTypes = ATTNLAB_FP8_E5M2 + 1;

// Converts an enumerator of the C interface to C++; both count from 0 in the same order. `of`: the
// name of the struct that has the field, such as "q".
template <typename Enum>
absl::Status Convert(absl::string_view field, int32_t value, int32_t count, Enum* to,
                     absl::string_view of = "") {
  if (value < 0 || value >= count) {
    return Invalid(absl::StrCat(of, of.empty() ? "" : ": ", field),
                   absl::StrCat(value, " is not in 0..", count - 1));
  }
  *to = static_cast<Enum>(value);
  return absl::OkStatus();
}

// Reads a dtype that may be left out.
absl::Status ReadDType(absl::string_view field, int32_t has, int32_t value,
                       std::optional<DType>* to) {
  if (has != 0) return Convert(field, value, kDTypes, &to->emplace());
  if (value == 0) return absl::OkStatus();
  return Invalid(field, absl::StrCat(value, " is given, but has_", field, " is 0"));
}

}  // namespace

int32_t Report(absl::FunctionRef<absl::Status()> call) {
  try {
    const absl::Status status = call();
    if (!status.ok()) Message() = std::string(status.message());
    return static_cast<int32_t>(status.code());
  } catch (const std::bad_alloc&) {
    Message() = "out of memory";  // short enough to need no allocation
    return ATTNLAB_RESOURCE_EXHAUSTED;
  } catch (const std::exception&) {
    Message() = "exception";
    return ATTNLAB_INTERNAL;
  }
}

const char* LastError() { return Message().c_str(); }

absl::Status Invalid(absl::string_view field, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
}

absl::Status CheckSize(absl::string_view name, uint64_t size, uint64_t known) {
  if (size >= sizeof(size) && size <= 4096 && size % sizeof(size) == 0) return absl::OkStatus();
  return Invalid(name,
                 absl::StrCat("size ", size, ", must be ", known, ", the size of the struct"));
}

absl::StatusOr<Device> ReadDevice(int32_t kind, int32_t ordinal) {
  Device device;
  if (absl::Status s = Convert("device_kind", kind, 2, &device.kind); !s.ok()) return s;
  if (device.kind == DeviceKind::kCpu && ordinal != 0) {
    return Invalid("device_ordinal", absl::StrCat(ordinal, " is not 0; there is only CPU 0"));
  }
  device.ordinal = ordinal;
  return device;
}

absl::StatusOr<AttentionProblem> ReadProblem(const attnlab_problem* from) {
  absl::StatusOr<attnlab_problem> c = Read("problem", from);
  if (!c.ok()) return c.status();
  AttentionProblem p;
  p.b = c->b;
  p.hq = c->hq;
  p.hkv = c->hkv;
  p.sq = c->sq;
  p.skv = c->skv;
  p.d = c->d;
  p.dv = c->dv;
  absl::Status s = Convert("dtype", c->dtype, kDTypes, &p.dtype);
  if (s.ok()) s = Convert("mask", c->mask, 3, &p.mask.kind);
  if (s.ok()) s = Convert("lens", c->lens, 3, &p.lens);
  if (!s.ok()) return s;
  p.mask.left = c->window_left;
  p.mask.right = c->window_right;
  if (c->has_scale != 0) {
    p.scale = c->scale;
  } else if (c->scale != 0) {
    return Invalid("scale", absl::StrCat(c->scale, " is given, but has_scale is 0, which means ",
                                         "1/sqrt(d); set has_scale to 1, or scale to 0"));
  }
  p.softcap = c->softcap;
  p.page = c->page;
  p.scale_block = c->scale_block;
  if (s = ReadDType("kv_dtype", c->has_kv_dtype, c->kv_dtype, &p.kv_dtype); !s.ok()) return s;
  if (s = ReadDType("v_dtype", c->has_v_dtype, c->v_dtype, &p.v_dtype); !s.ok()) return s;
  if (s = ReadDType("o_dtype", c->has_o_dtype, c->o_dtype, &p.o_dtype); !s.ok()) return s;
  return p;
}

attnlab_problem ToC(const AttentionProblem& p) {
  attnlab_problem c;
  std::memset(&c, 0, sizeof(c));
  c.b = p.b;
  c.hq = p.hq;
  c.hkv = p.hkv;
  c.sq = p.sq;
  c.skv = p.skv;
  c.d = p.d;
  c.dv = p.dv;
  c.dtype = static_cast<int32_t>(p.dtype);
  c.mask = static_cast<int32_t>(p.mask.kind);
  c.window_left = p.mask.left;
  c.window_right = p.mask.right;
  c.has_scale = p.scale.has_value();
  c.scale = p.scale.value_or(0);
  c.softcap = p.softcap;
  c.lens = static_cast<int32_t>(p.lens);
  c.page = p.page;
  c.scale_block = p.scale_block;
  c.has_kv_dtype = p.kv_dtype.has_value();
  c.kv_dtype = static_cast<int32_t>(p.kv_dtype.value_or(DType{}));
  c.has_v_dtype = p.v_dtype.has_value();
  c.v_dtype = static_cast<int32_t>(p.v_dtype.value_or(DType{}));
  c.has_o_dtype = p.o_dtype.has_value();
  c.o_dtype = static_cast<int32_t>(p.o_dtype.value_or(DType{}));
  return c;
}

absl::StatusOr<TensorView> ReadTensor(absl::string_view name, const attnlab_tensor* from) {
  absl::StatusOr<attnlab_tensor> c = Read(name, from);
  if (!c.ok()) return c.status();
  TensorView view;
  absl::Status s = Convert("dtype", c->dtype, kDTypes, &view.dtype, name);
  if (s.ok()) s = Convert("device_kind", c->device_kind, 2, &view.device.kind, name);
  if (s.ok() && c->reserved != 0) s = Invalid(name, "reserved is not 0");
  if (!s.ok()) return s;
  view.device.ordinal = c->device_ordinal;
  view.data = c->data;
  std::copy(std::begin(c->shape), std::end(c->shape), view.shape.begin());
  std::copy(std::begin(c->strides), std::end(c->strides), view.strides.begin());
  return view;
}

absl::StatusOr<AttentionTensors> ReadTensors(const AttentionProblem& problem,
                                             const attnlab_forward_args& args) {
  AttentionTensors t;
  struct Input {
    absl::string_view name;
    const attnlab_tensor* from;
    ConstTensorView* to;
  };
  const Input kInputs[] = {{"q", args.q, &t.q}, {"k", args.k, &t.k}, {"v", args.v, &t.v}};
  for (const auto& input : kInputs) {
    absl::StatusOr<TensorView> view = ReadTensor(input.name, input.from);
    if (!view.ok()) return view.status();
    *input.to = *view;
  }
  absl::StatusOr<TensorView> o = ReadTensor("o", args.o);
  if (!o.ok()) return o.status();
  t.o = *o;
  if (args.lse != nullptr) {
    absl::StatusOr<TensorView> lse = ReadTensor("lse", args.lse);
    if (!lse.ok()) return lse.status();
    const bool empty = std::count(lse->shape.begin(), lse->shape.end(), 0) > 0;
    if (lse->data == nullptr && !empty) {
      return Invalid("lse", "the data pointer is null; pass lse = NULL if it is not wanted");
    }
    t.lse = *lse;
  }
  const auto lengths = [](const int32_t* data, int64_t count) {
    return data == nullptr ? LengthsView{} : LengthsView{data, count};
  };
  t.cu_seqlens_q = lengths(args.cu_seqlens_q, problem.b + 1);
  t.cu_seqlens_kv = lengths(args.cu_seqlens_kv, problem.b + 1);
  t.q_len = lengths(args.q_len, problem.b);
  t.kv_len = lengths(args.kv_len, problem.b);
  if (args.page_table != nullptr) {
    t.page_table = {args.page_table, problem.b, args.page_table_columns,
                    args.page_table_row_stride};
  }
  const Input kScales[] = {{"q_scale", args.q_scale, &t.q_scale},
                           {"k_scale", args.k_scale, &t.k_scale},
                           {"v_scale", args.v_scale, &t.v_scale}};
  for (const auto& scale : kScales) {
    if (scale.from == nullptr) continue;
    absl::StatusOr<TensorView> view = ReadTensor(scale.name, scale.from);
    if (!view.ok()) return view.status();
    if (view->data == nullptr) {
      return Invalid(scale.name, "the data pointer is null; pass NULL if all are 1");
    }
    *scale.to = *view;
  }
  return t;
}

}  // namespace attnlab::c
