#include "attention/attention_c.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/attention.h"

namespace attnlab {
namespace {

std::string& LastError() {
  static thread_local std::string message;
  return message;
}

// The code of what `call` returns. Large memory is asked for with a Status; what is left of
// std::bad_alloc must not pass through callers in C.
template <typename Call>
int32_t Report(const Call& call) {
  try {
    const absl::Status status = call();
    if (!status.ok()) LastError() = std::string(status.message());
    return static_cast<int32_t>(status.code());
  } catch (const std::bad_alloc&) {
    LastError() = "out of memory";  // short enough to need none
    return ATTNLAB_RESOURCE_EXHAUSTED;
  }
}

absl::Status Invalid(absl::string_view field, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
}

// Copies what the caller's struct has of T, and zero for the rest. A caller's struct that is
// longer than ours must be zero where we do not know it.
template <typename T>
absl::StatusOr<T> Read(absl::string_view name, const T* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from == nullptr) return Invalid(name, "is null");
  const uint64_t size = from->size;
  // Fields are at most 8 bytes and aligned, so that a true size cuts none of them.
  if (size < sizeof(size) || size > 4096 || size % alignof(T) != 0) {
    return Invalid(name, absl::StrCat("size ", size, " is not the size of the struct, which is ",
                                      sizeof(T), " bytes here"));
  }
  T copy;
  std::memset(&copy, 0, sizeof(copy));
  std::memcpy(&copy, from, std::min<uint64_t>(size, sizeof(T)));
  const char* bytes = reinterpret_cast<const char*>(from);
  for (uint64_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Invalid(name, absl::StrCat("byte ", i, " of ", size,
                                        " is set, in a field that this library, of interface "
                                        "version ",
                                        ATTNLAB_ABI_VERSION, ", does not know"));
    }
  }
  return copy;
}

// An enumerator of the C interface as one of ours; both count from 0 in the same order.
template <typename Enum>
absl::Status Convert(absl::string_view field, int32_t value, int32_t count, Enum* to) {
  if (value < 0 || value >= count) {
    return Invalid(field, absl::StrCat(value, " is not in 0..", count - 1));
  }
  *to = static_cast<Enum>(value);
  return absl::OkStatus();
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
  absl::Status s = Convert("dtype", c->dtype, 4, &p.dtype);
  if (s.ok()) s = Convert("mask", c->mask, 3, &p.mask.kind);
  if (s.ok()) s = Convert("lens", c->lens, 3, &p.lens);
  if (!s.ok()) return s;
  p.mask.left = c->window_left;
  p.mask.right = c->window_right;
  if (c->has_scale != 0) p.scale = c->scale;
  p.softcap = c->softcap;
  p.page = c->page;
  return p;
}

absl::StatusOr<TensorView> ReadTensor(absl::string_view name, const attnlab_tensor* from) {
  absl::StatusOr<attnlab_tensor> c = Read(name, from);
  if (!c.ok()) return c.status();
  TensorView view;
  absl::Status s = Convert(absl::StrCat(name, ": dtype"), c->dtype, 4, &view.dtype);
  if (s.ok())
    s = Convert(absl::StrCat(name, ": device_kind"), c->device_kind, 2, &view.device.kind);
  if (s.ok() && c->reserved != 0) s = Invalid(name, "reserved is not 0");
  if (!s.ok()) return s;
  view.device.ordinal = c->device_ordinal;
  view.data = c->data;
  std::copy(std::begin(c->shape), std::end(c->shape), view.shape.begin());
  std::copy(std::begin(c->strides), std::end(c->strides), view.strides.begin());
  return view;
}

absl::StatusOr<Plan> ReadPlan(const attnlab_forward_args& args) {
  absl::StatusOr<AttentionProblem> problem = ReadProblem(args.problem);
  if (!problem.ok()) return problem.status();
  absl::StatusOr<TensorView> q = ReadTensor("q", args.q);
  if (!q.ok()) return q.status();
  absl::StatusOr<LaunchConfig> config =
      LaunchConfig::Parse(args.config == nullptr ? "" : args.config);
  if (!config.ok()) return config.status();
  return MakePlan(*problem, q->device, args.kernel == nullptr ? "" : args.kernel, *config);
}

absl::StatusOr<AttentionTensors> ReadTensors(const AttentionProblem& problem,
                                             const attnlab_forward_args& args) {
  AttentionTensors t;
  const struct {
    absl::string_view name;
    const attnlab_tensor* from;
    ConstTensorView* to;
  } kInputs[] = {{"q", args.q, &t.q}, {"k", args.k, &t.k}, {"v", args.v, &t.v}};
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
      return Invalid("lse", "the data pointer is null; pass no lse where it is not wanted");
    }
    t.lse = *lse;
  }
  // The counts are the problem's: C passes pointers alone.
  const auto lengths = [](const int32_t* data, int64_t count) {
    return data == nullptr ? LengthsView{} : LengthsView{data, count};
  };
  t.cu_seqlens_q = lengths(args.cu_seqlens_q, problem.b + 1);
  t.cu_seqlens_kv = lengths(args.cu_seqlens_kv, problem.b + 1);
  t.q_len = lengths(args.q_len, problem.b);
  t.kv_len = lengths(args.kv_len, problem.b);
  return t;
}

absl::Status WorkspaceBytes(const attnlab_forward_args* from, int64_t* bytes) {
  absl::StatusOr<attnlab_forward_args> args = Read("args", from);
  if (!args.ok()) return args.status();
  if (bytes == nullptr) return Invalid("bytes", "is null");
  absl::StatusOr<Plan> plan = ReadPlan(*args);
  if (!plan.ok()) return plan.status();
  *bytes = plan->workspace_bytes;
  return absl::OkStatus();
}

absl::Status RunForward(const attnlab_forward_args* from) {
  absl::StatusOr<attnlab_forward_args> args = Read("args", from);
  if (!args.ok()) return args.status();
  absl::StatusOr<Plan> plan = ReadPlan(*args);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<AttentionTensors> tensors = ReadTensors(plan->problem, *args);
  if (!tensors.ok()) return tensors.status();
  return attnlab::Forward(*plan, *tensors, {args->workspace, args->workspace_bytes}, args->stream);
}

}  // namespace
}  // namespace attnlab

extern "C" {

int32_t attnlab_abi_version(void) { return ATTNLAB_ABI_VERSION; }

const char* attnlab_last_error(void) { return attnlab::LastError().c_str(); }

int32_t attnlab_workspace_bytes(const attnlab_forward_args* args, int64_t* bytes) {
  return attnlab::Report([&] { return attnlab::WorkspaceBytes(args, bytes); });
}

int32_t attnlab_forward(const attnlab_forward_args* args) {
  return attnlab::Report([&] { return attnlab::RunForward(args); });
}

const char* attnlab_kernels(void) {
  static const std::string* const kNames = [] {
    std::vector<std::string> names;
    for (const attnlab::Kernel* kernel : attnlab::Registry::Global().All()) {
      names.push_back(kernel->traits().name);
    }
    return new std::string(absl::StrJoin(names, ","));
  }();
  return kNames->c_str();
}

}  // extern "C"
