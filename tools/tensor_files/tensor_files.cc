#include "tools/tensor_files/tensor_files.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"

namespace attnlab {
namespace {

absl::Status Invalid(absl::string_view subject, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(subject, ": ", message));
}

std::string Shape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The file's name in errors.
std::string NameOf(const std::string& path) { return path == "-" ? "standard input" : path; }

// A tensor read from a file.
struct Loaded {
  std::string name;  // of the file
  NpyArray array;
  int64_t b = 1, s = 0, h = 0, d = 0;
  bool has_batch_axis = true;
};

bool IsReal(NpyType type) { return type != NpyType::kInt32 && type != NpyType::kInt64; }

absl::StatusOr<Loaded> Load(const std::string& path) {
  absl::StatusOr<NpyArray> array = ReadNpy(path);
  if (!array.ok()) return array.status();
  if (!IsReal(array->header.type)) {
    return Invalid(NameOf(path), absl::StrCat("expected fp16, bf16, fp32 or fp64 elements, found ",
                                              Name(array->header.type)));
  }
  Loaded loaded;
  loaded.name = NameOf(path);
  loaded.array = *std::move(array);
  return loaded;
}

absl::StatusOr<Loaded> LoadTensor(const std::string& path, FileLayout layout) {
  absl::StatusOr<Loaded> loaded = Load(path);
  if (!loaded.ok()) return loaded.status();
  std::vector<int64_t> shape = loaded->array.header.shape;
  loaded->has_batch_axis = shape.size() == 4;
  if (shape.size() == 3) shape.insert(shape.begin(), 1);
  const bool bshd = layout == FileLayout::kBshd;
  if (shape.size() != 4) {
    return Invalid(loaded->name,
                   absl::StrCat("shape: ", Shape(shape), " is not [",
                                bshd ? "B, S, H, D" : "B, H, S, D", "], with or without B"));
  }
  loaded->b = shape[0];
  loaded->s = bshd ? shape[1] : shape[2];
  loaded->h = bshd ? shape[2] : shape[1];
  loaded->d = shape[3];
  return loaded;
}

absl::StatusOr<Loaded> LoadQkv(const std::string& path) {
  absl::StatusOr<Loaded> loaded = Load(path);
  if (!loaded.ok()) return loaded.status();
  std::vector<int64_t> shape = loaded->array.header.shape;
  loaded->has_batch_axis = shape.size() == 5;
  if (shape.size() == 4) shape.insert(shape.begin(), 1);
  if (shape.size() != 5 || shape[2] != 3) {
    return Invalid(loaded->name, absl::StrCat("shape: ", Shape(loaded->array.header.shape),
                                              " is not [B, T, 3, H, D], with or without B"));
  }
  loaded->b = shape[0];
  loaded->s = shape[1];
  loaded->h = shape[3];
  loaded->d = shape[4];
  return loaded;
}

absl::Status CheckSame(const Loaded& a, absl::string_view axis, int64_t value, const Loaded& b,
                       int64_t expected) {
  if (value == expected) return absl::OkStatus();
  return Invalid(a.name,
                 absl::StrCat(axis, ": expected ", expected, " as in ", b.name, ", found ", value));
}

absl::StatusOr<DType> ComputeDType(const Loaded& q, absl::Span<const Loaded* const> others,
                                   const std::string& wanted) {
  if (!wanted.empty()) {
    // .npy files have no fp8.
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      if (wanted == Name(dtype)) return dtype;
    }
    return Invalid("--dtype", absl::StrCat("\"", wanted, "\" is not one of fp32, fp16, bf16"));
  }
  const NpyType type = q.array.header.type;
  for (const Loaded* other : others) {
    if (other->array.header.type != type) {
      return Invalid(other->name, absl::StrCat("expected ", Name(type), " elements as in ", q.name,
                                               ", found ", Name(other->array.header.type),
                                               "; --dtype=fp32 would compute all in fp32"));
    }
  }
  if (type == NpyType::kFloat16) return DType::kFloat16;
  if (type == NpyType::kBFloat16) return DType::kBFloat16;
  return DType::kFloat32;
}

// The elements in `dtype`, without a copy if the file has that dtype. A number that would become
// infinite is an error: its scores would be infinite or NaN, and nothing would say why.
absl::StatusOr<Buffer> Converted(const std::string& name, NpyArray array, DType dtype) {
  if (array.header.type == NpyTypeOf(dtype)) return std::move(array.data);
  const int64_t count = array.header.NumElements();
  absl::StatusOr<Buffer> data = Buffer::Allocate(Device::Cpu(), count * SizeOf(dtype));
  if (!data.ok()) return data.status();
  for (int64_t i = 0; i < count; ++i) {
    const double from = LoadAsDouble(array, i);
    StoreElement(data->data(), dtype, i, static_cast<float>(from));
    if (std::isfinite(from) && std::isinf(LoadElement(data->data(), dtype, i))) {
      return Invalid(name, absl::StrCat("element ", i, " is ", from, ", which is too large for ",
                                        Name(dtype)));
    }
  }
  return data;
}

ConstTensorView ViewOf(const void* data, DType dtype, const Loaded& t, FileLayout layout) {
  return layout == FileLayout::kBshd ? BshdView(data, dtype, Device::Cpu(), t.b, t.s, t.h, t.d)
                                     : BhsdView(data, dtype, Device::Cpu(), t.b, t.s, t.h, t.d);
}

// Reads lengths or offsets as int32.
absl::StatusOr<Buffer> LoadLengths(const std::string& path, int64_t* count) {
  absl::StatusOr<NpyArray> array = ReadNpy(path);
  if (!array.ok()) return array.status();
  const std::string name = NameOf(path);
  if (IsReal(array->header.type)) {
    return Invalid(
        name, absl::StrCat("expected int32 or int64 elements, found ", Name(array->header.type)));
  }
  if (array->header.shape.size() != 1) {
    return Invalid(name,
                   absl::StrCat("shape: expected one axis, found ", Shape(array->header.shape)));
  }
  *count = array->header.shape[0];
  if (array->header.type == NpyType::kInt32) return std::move(array->data);
  absl::StatusOr<Buffer> data = Buffer::Allocate(Device::Cpu(), *count * 4);
  if (!data.ok()) return data.status();
  // Only values that int32 cannot hold; CheckLengthFiles() compares the others with the tensors.
  const auto* from = static_cast<const int64_t*>(array->data.data());
  for (int64_t i = 0; i < *count; ++i) {
    if (from[i] < 0 || from[i] > AttentionProblem::kMaxExtent) {
      return Invalid(name, absl::StrCat("entry ", i, " is ", from[i], ", which is not in 0..",
                                        AttentionProblem::kMaxExtent));
    }
    static_cast<int32_t*>(data->data())[i] = static_cast<int32_t>(from[i]);
  }
  return data;
}

// The longest sequence. The offsets have not been checked yet.
int64_t Longest(const LengthsView& offsets) {
  int64_t longest = 0;
  for (int64_t i = 1; i < offsets.count; ++i) {
    longest = std::max(longest, int64_t{offsets.data[i]} - offsets.data[i - 1]);
  }
  return longest;
}

// Reads the given files of lengths and sets *lens to their kind.
absl::Status AddLengths(const TensorFiles& files, LoadedTensors* loaded, Lengths* lens) {
  const bool padded = !files.q_len.empty() || !files.kv_len.empty();
  const bool packed = !files.cu_seqlens_q.empty() || !files.cu_seqlens_kv.empty();
  if (padded && packed) {
    return absl::InvalidArgumentError(
        "--q_len and --kv_len are for padded tensors, --cu_seqlens_q and --cu_seqlens_kv for "
        "packed ones; give one kind");
  }
  if (packed && (files.cu_seqlens_q.empty() || files.cu_seqlens_kv.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        files.cu_seqlens_q.empty() ? "--cu_seqlens_q" : "--cu_seqlens_kv",
        " is missing; where queries and keys are the same tokens, give one file to both"));
  }
  *lens = packed ? Lengths::kPacked : padded ? Lengths::kPadded : Lengths::kFixed;
  const struct {
    const std::string& path;
    LengthsView* view;
  } kFiles[] = {{files.q_len, &loaded->tensors.q_len},
                {files.kv_len, &loaded->tensors.kv_len},
                {files.cu_seqlens_q, &loaded->tensors.cu_seqlens_q},
                {files.cu_seqlens_kv, &loaded->tensors.cu_seqlens_kv}};
  for (const auto& file : kFiles) {
    if (file.path.empty()) continue;
    int64_t count = 0;
    absl::StatusOr<Buffer> data = LoadLengths(file.path, &count);
    if (!data.ok()) return data.status();
    *file.view = {static_cast<const int32_t*>(data->data()), count};
    loaded->buffers.push_back(*std::move(data));
  }
  return absl::OkStatus();
}

// Checks the offsets of `count - 1` sequences in a tensor of `tokens`.
absl::Status CheckOffsets(const std::string& name, const LengthsView& offsets, int64_t count,
                          int64_t tokens) {
  if (offsets.count != count) {
    return Invalid(name, absl::StrCat("the number of entries is ", offsets.count, ", not ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    const std::string entry = absl::StrCat("entry ", i, " is ", offsets.data[i]);
    if (i == 0 && offsets.data[i] != 0) return Invalid(name, absl::StrCat(entry, ", not 0"));
    if (i > 0 && offsets.data[i] < offsets.data[i - 1]) {
      return Invalid(name, absl::StrCat(entry, ", below the ", offsets.data[i - 1], " before it"));
    }
    if (offsets.data[i] > tokens) {
      return Invalid(name, absl::StrCat(entry, ", and the tensor ends at ", tokens));
    }
  }
  return absl::OkStatus();
}

// Forward() cannot check lengths on a GPU, and does not know which file they come from.
absl::Status CheckLengthFiles(const TensorFiles& files, const AttentionProblem& p,
                              const AttentionTensors& t, int64_t q_tokens, int64_t kv_tokens) {
  const auto name = [](absl::string_view flag, const std::string& path) {
    return absl::StrCat("--", flag, ": ", NameOf(path));
  };
  absl::Status s;
  if (p.lens == Lengths::kPacked) {
    s = CheckOffsets(name("cu_seqlens_q", files.cu_seqlens_q), t.cu_seqlens_q, p.b + 1, q_tokens);
    s.Update(CheckOffsets(name("cu_seqlens_kv", files.cu_seqlens_kv), t.cu_seqlens_kv, p.b + 1,
                          kv_tokens));
  }
  if (!files.q_len.empty()) {
    s.Update(
        CheckLengths(name("q_len", files.q_len), {t.q_len.data, size_t(t.q_len.count)}, p.b, p.sq));
  }
  if (!files.kv_len.empty()) {
    s.Update(CheckLengths(name("kv_len", files.kv_len), {t.kv_len.data, size_t(t.kv_len.count)},
                          p.b, p.skv));
  }
  return s;
}

// The problem of these shapes and flags. It goes through the one-line form, which has the checks.
absl::StatusOr<AttentionProblem> ProblemOf(const TensorFiles& files, const Loaded& q,
                                           const Loaded& k, const Loaded& v, DType dtype,
                                           Lengths lens, const AttentionTensors& tensors) {
  int64_t b = q.b, sq = q.s, skv = k.s;
  std::string line;
  if (lens == Lengths::kPacked) {
    if (q.b != 1) {
      return Invalid(q.name, absl::StrCat("batch: expected 1 with --cu_seqlens_q, found ", q.b));
    }
    b = tensors.cu_seqlens_q.count - 1;
    if (b < 1) return Invalid(NameOf(files.cu_seqlens_q), "has fewer than 2 entries");
    sq = Longest(tensors.cu_seqlens_q);
    skv = Longest(tensors.cu_seqlens_kv);
    line = ",lens=packed";
  } else if (lens == Lengths::kPadded) {
    line = ",lens=padded";
  }
  const struct {
    absl::string_view key;
    const std::string& value;
  } kFlags[] = {{"mask", files.mask}, {"scale", files.scale}, {"softcap", files.softcap}};
  for (const auto& flag : kFlags) {
    if (flag.value.empty()) continue;
    if (flag.value.find(',') != std::string::npos) {
      return Invalid(absl::StrCat("--", flag.key),
                     absl::StrCat("\"", flag.value, "\" has a comma"));
    }
    absl::StrAppend(&line, ",", flag.key, "=", flag.value);
  }
  return AttentionProblem::Parse(absl::StrCat("b=", b, ",hq=", q.h, ",hkv=", k.h, ",sq=", sq,
                                              ",skv=", skv, ",d=", q.d, ",dv=", v.d,
                                              ",dtype=", Name(dtype), line));
}

absl::Status LoadSeparate(const TensorFiles& files, LoadedTensors* loaded) {
  absl::StatusOr<Loaded> q = LoadTensor(files.q, files.layout);
  if (!q.ok()) return q.status();
  absl::StatusOr<Loaded> k = LoadTensor(files.k, files.layout);
  if (!k.ok()) return k.status();
  absl::StatusOr<Loaded> v = LoadTensor(files.v, files.layout);
  if (!v.ok()) return v.status();
  absl::Status s = CheckSame(*k, "batch", k->b, *q, q->b);
  if (s.ok()) s = CheckSame(*v, "batch", v->b, *k, k->b);
  if (s.ok()) s = CheckSame(*k, "head dim", k->d, *q, q->d);
  if (s.ok()) s = CheckSame(*v, "length", v->s, *k, k->s);
  if (s.ok()) s = CheckSame(*v, "heads", v->h, *k, k->h);
  if (!s.ok()) return s;
  const absl::StatusOr<DType> dtype = ComputeDType(*q, {&*k, &*v}, files.dtype);
  if (!dtype.ok()) return dtype.status();
  Lengths lens = Lengths::kFixed;
  if (s = AddLengths(files, loaded, &lens); !s.ok()) return s;
  absl::StatusOr<AttentionProblem> problem =
      ProblemOf(files, *q, *k, *v, *dtype, lens, loaded->tensors);
  if (!problem.ok()) return problem.status();
  s = CheckLengthFiles(files, *problem, loaded->tensors, q->s, k->s);
  if (!s.ok()) return s;
  loaded->problem = *problem;
  loaded->has_batch_axis = q->has_batch_axis;
  const struct {
    Loaded* from;
    ConstTensorView* view;
  } kTensors[] = {{&*q, &loaded->tensors.q}, {&*k, &loaded->tensors.k}, {&*v, &loaded->tensors.v}};
  for (const auto& t : kTensors) {
    absl::StatusOr<Buffer> data = Converted(t.from->name, std::move(t.from->array), *dtype);
    if (!data.ok()) return data.status();
    *t.view = ViewOf(data->data(), *dtype, *t.from, files.layout);
    loaded->buffers.push_back(*std::move(data));
  }
  return absl::OkStatus();
}

absl::Status LoadPacked(const TensorFiles& files, LoadedTensors* loaded) {
  absl::StatusOr<Loaded> qkv = LoadQkv(files.qkv);
  if (!qkv.ok()) return qkv.status();
  const absl::StatusOr<DType> dtype = ComputeDType(*qkv, {}, files.dtype);
  if (!dtype.ok()) return dtype.status();
  Lengths lens = Lengths::kFixed;
  if (absl::Status s = AddLengths(files, loaded, &lens); !s.ok()) return s;
  absl::StatusOr<AttentionProblem> problem =
      ProblemOf(files, *qkv, *qkv, *qkv, *dtype, lens, loaded->tensors);
  if (!problem.ok()) return problem.status();
  absl::Status s = CheckLengthFiles(files, *problem, loaded->tensors, qkv->s, qkv->s);
  if (!s.ok()) return s;
  loaded->problem = *problem;
  loaded->has_batch_axis = qkv->has_batch_axis;
  absl::StatusOr<Buffer> data = Converted(qkv->name, std::move(qkv->array), *dtype);
  if (!data.ok()) return data.status();
  const QkvViews views =
      PackedQkvViews(data->data(), *dtype, Device::Cpu(), qkv->b, qkv->s, qkv->h, qkv->d);
  loaded->tensors.q = views.q;
  loaded->tensors.k = views.k;
  loaded->tensors.v = views.v;
  loaded->buffers.push_back(*std::move(data));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileLayout> ParseFileLayout(absl::string_view text) {
  if (text == "bshd") return FileLayout::kBshd;
  if (text == "bhsd") return FileLayout::kBhsd;
  return Invalid("--layout", absl::StrCat("\"", text, "\" is not one of bshd, bhsd"));
}

absl::StatusOr<LoadedTensors> LoadTensors(const TensorFiles& files) {
  LoadedTensors loaded;
  absl::Status s = files.qkv.empty() ? LoadSeparate(files, &loaded) : LoadPacked(files, &loaded);
  if (!s.ok()) return s;
  return loaded;
}

absl::StatusOr<LoadedTensors> CopyTo(const LoadedTensors& loaded, Device device) {
  LoadedTensors there;
  there.problem = loaded.problem;
  there.tensors = loaded.tensors;
  there.has_batch_axis = loaded.has_batch_axis;
  if (device.kind == DeviceKind::kCpu) return there;
  // Each view points into one of the buffers, at some offset.
  std::vector<Buffer>& moved = there.buffers;
  const auto address = [&](const void* old) -> const void* {
    for (size_t i = 0; i < moved.size(); ++i) {
      const Buffer& from = loaded.buffers[i];
      const char* start = static_cast<const char*>(from.data());
      const char* p = static_cast<const char*>(old);
      if (p >= start && p <= start + from.bytes()) {
        return static_cast<const char*>(moved[i].data()) + (p - start);
      }
    }
    return nullptr;
  };
  for (const Buffer& buffer : loaded.buffers) {
    absl::StatusOr<Buffer> copy = Buffer::Allocate(device, buffer.bytes());
    if (!copy.ok()) return copy.status();
    if (absl::Status s = copy->CopyFromHost(buffer.data(), buffer.bytes()); !s.ok()) return s;
    moved.push_back(*std::move(copy));
  }
  AttentionTensors& t = there.tensors;
  for (ConstTensorView* view : {&t.q, &t.k, &t.v}) {
    view->data = address(view->data);
    view->device = device;
  }
  for (LengthsView* view : {&t.q_len, &t.kv_len, &t.cu_seqlens_q, &t.cu_seqlens_kv}) {
    if (view->data != nullptr) view->data = static_cast<const int32_t*>(address(view->data));
  }
  return there;
}

}  // namespace attnlab
