#include "attention/fp8/accuracy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attention/attention.h"
#include "attention/core/dtype.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/cuda/memory.h"
#include "attention/fp8/quantize.h"
#include "attention/oracle/reference.h"

namespace attnlab::fp8 {
namespace {

constexpr int64_t kMostRows = 2048;

// A tensor on the host: an allocation, and its shape.
struct Tensor {
  Buffer buffer;
  DType dtype = DType::kFloat32;
  std::array<int64_t, 4> shape = {};

  int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  TensorView View() {
    return BshdView(buffer.data(), dtype, Device::Cpu(), shape[0], shape[1], shape[2], shape[3]);
  }
};

absl::StatusOr<Tensor> Make(DType dtype, const std::array<int64_t, 4>& shape) {
  Tensor t;
  t.dtype = dtype;
  t.shape = shape;
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device::Cpu(), t.elements() * SizeOf(dtype));
  if (!buffer.ok()) return buffer.status();
  t.buffer = *std::move(buffer);
  return t;
}

// Q, K and V, and for fp8 their scales.
using Tensors = std::vector<Tensor>;

absl::StatusOr<Tensors> MakeAll(DType dtype, const std::vector<std::array<int64_t, 4>>& shapes) {
  Tensors all;
  for (const std::array<int64_t, 4>& shape : shapes) {
    absl::StatusOr<Tensor> t = Make(dtype, shape);
    if (!t.ok()) return t.status();
    all.push_back(*std::move(t));
  }
  return all;
}

void Draw(uint64_t seed, Tensors* all) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::bernoulli_distribution is_outlier(0.001);
  for (Tensor& t : *all) {
    auto* const x = static_cast<float*>(t.buffer.data());
    for (int64_t i = 0; i < t.elements(); ++i) {
      x[i] = normal(random);
      if (is_outlier(random)) x[i] += 10 * normal(random);
    }
  }
}

// Runs a kernel, and returns O.
absl::StatusOr<Tensor> Run(const AttentionProblem& p, Device device, AttentionTensors t,
                           absl::string_view kernel) {
  absl::StatusOr<Tensor> o = Make(p.ODType(), {p.b, p.sq, p.hq, p.dv});
  if (!o.ok()) return o.status();
  // The inputs and O where the kernel runs.
  std::vector<Buffer> there;
  const auto move = [&](auto* view, int64_t bytes) -> absl::Status {
    if (view->data == nullptr || device.kind == DeviceKind::kCpu) return absl::OkStatus();
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes);
    if (!buffer.ok()) return buffer.status();
    if (absl::Status s = buffer->CopyFromHost(view->data, bytes); !s.ok()) return s;
    view->data = buffer->data();
    view->device = device;
    there.push_back(*std::move(buffer));
    return absl::OkStatus();
  };
  t.o = o->View();
  const auto bytes = [](const auto& view) { return view.NumElements() * SizeOf(view.dtype); };
  for (ConstTensorView* view : {&t.q, &t.k, &t.v, &t.q_scale, &t.k_scale, &t.v_scale}) {
    if (absl::Status s = move(view, bytes(*view)); !s.ok()) return s;
  }
  if (absl::Status s = move(&t.o, o->buffer.bytes()); !s.ok()) return s;
  if (absl::Status s = ForwardOnce(p, t, kernel); !s.ok()) return s;
  if (!there.empty()) {
    absl::Status s = there.back().CopyToHost(o->buffer.data(), o->buffer.bytes());
    if (!s.ok()) return s;
  }
  return o;
}

// Runs the default kernel and compares O.
absl::StatusOr<Accuracy> Compare(std::string name, const AttentionProblem& p, Device device,
                                 const AttentionTensors& t, const std::vector<oracle::Row>& rows,
                                 const oracle::Result& exact) {
  absl::StatusOr<Plan> plan = MakePlan(p, device);
  if (!plan.ok()) return plan.status();
  Accuracy found;
  found.name = std::move(name);
  found.kernel = plan->kernel->traits().name;
  absl::StatusOr<Tensor> o = Run(p, device, t, found.kernel);
  if (!o.ok()) return o.status();
  const TensorView view = o->View();
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t at = view.Offset(rows[i].sequence, rows[i].row, rows[i].head, 0);
    for (int64_t c = 0; c < p.dv; ++c) {
      const double error =
          LoadElement(view.data, view.dtype, at + c) - exact.O(static_cast<int64_t>(i), c);
      sum += error * error;
      found.largest = std::max(found.largest, std::abs(error));
    }
  }
  const auto compared = static_cast<double>(rows.size()) * static_cast<double>(p.dv);
  found.rmse = compared > 0 ? std::sqrt(sum / compared) : 0;
  return found;
}

AttentionTensors InputsOf(Tensors& all) {
  AttentionTensors t;
  t.q = all[0].View(), t.k = all[1].View(), t.v = all[2].View();
  return t;
}

// The same numbers in another dtype.
absl::StatusOr<Tensors> Narrow(Tensors& wide, DType dtype) {
  Tensors all;
  for (Tensor& from : wide) {
    absl::StatusOr<Tensor> t = Make(dtype, from.shape);
    if (!t.ok()) return t.status();
    const auto* const x = static_cast<const float*>(from.buffer.data());
    for (int64_t i = 0; i < t->elements(); ++i) StoreElement(t->buffer.data(), dtype, i, x[i]);
    all.push_back(*std::move(t));
  }
  return all;
}

// The shapes of the scales of Q, K and V.
std::vector<std::array<int64_t, 4>> ScaleShapes(const AttentionProblem& p) {
  const int64_t blocks = p.ScaleBlocks(p.skv);
  return {{p.b, p.ScaleBlocks(p.sq), p.hq, 1}, {p.b, blocks, p.hkv, 1}, {p.b, blocks, p.hkv, 1}};
}

Fp8Tensors Fp8Of(Tensors& all, Tensors& scales) {
  return {all[0].View(),    all[1].View(),    all[2].View(),
          scales[0].View(), scales[1].View(), scales[2].View()};
}

// What would not change a figure would look as if it had.
absl::Status CheckIsForAccuracy(const AttentionProblem& p) {
  AttentionProblem plain = p;
  plain.kv_dtype = plain.v_dtype = plain.o_dtype = {};
  const struct {
    absl::string_view key;
    std::string value;
    bool given;
  } kKeys[] = {
      {"kvdtype", std::string(Name(p.KvDType())), p.KvDType() != p.dtype},
      {"vdtype", std::string(Name(p.VDType())), p.VDType() != p.KvDType()},
      {"odtype", std::string(Name(p.ODType())), p.ODType() != plain.ODType()},
      {"lens", p.lens == Lengths::kPacked ? "packed" : "padded", p.lens != Lengths::kFixed},
      {"page", absl::StrCat(p.page), p.page != 0},
      {"scaleblock", absl::StrCat(p.scale_block), p.scale_block != 0}};
  for (const auto& c : kKeys) {
    if (!c.given) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(c.key, ": ", c.value,
                     " is not for accuracy, which has dtypes, scales and "
                     "lengths of its own"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Accuracy>> MeasureAccuracy(
    const AttentionProblem& problem, Device device, uint64_t seed,
    const std::function<void(absl::string_view)>& begins) {
  if (absl::Status s = problem.Validate(); !s.ok()) return s;
  if (absl::Status s = CheckIsForAccuracy(problem); !s.ok()) return s;
  AttentionProblem p = problem;
  p.dtype = DType::kFloat32;
  p.kv_dtype = p.v_dtype = p.o_dtype = {};
  // Numbers in fp32 and in 16 bits, O in 16 bits, and the rows that are compared.
  const double rows_of_q = static_cast<double>(p.b) * static_cast<double>(p.sq * p.hq),
               rows_of_kv = static_cast<double>(p.b) * static_cast<double>(p.skv * p.hkv);
  const double bytes = 6 * (rows_of_q + rows_of_kv) * static_cast<double>(p.d) +
                       6 * rows_of_kv * static_cast<double>(p.dv) +
                       rows_of_q * static_cast<double>(2 * p.dv + sizeof(oracle::Row));
  const absl::StatusOr<int64_t> free = FreeMemory(Device::Cpu());
  if (free.ok() && bytes > static_cast<double>(*free)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory: accuracy of ", problem.ToString(), " takes ", bytes / (1 << 30),
                     " GiB, and cpu has ", static_cast<double>(*free) / (1 << 30), " GiB free"));
  }
  const std::vector<std::array<int64_t, 4>> shapes = {
      {p.b, p.sq, p.hq, p.d}, {p.b, p.skv, p.hkv, p.d}, {p.b, p.skv, p.hkv, p.dv}};
  begins("oracle");
  absl::StatusOr<Tensors> wide = MakeAll(DType::kFloat32, shapes);
  if (!wide.ok()) return wide.status();
  Draw(seed, &*wide);
  const AttentionTensors from = InputsOf(*wide);

  std::vector<oracle::Row> rows = oracle::AllRows(p, from);
  const auto all = static_cast<int64_t>(rows.size()), count = std::min(all, kMostRows);
  for (int64_t i = 0; i < count; ++i) rows[i] = rows[i * all / count];
  rows.resize(count);
  const absl::StatusOr<oracle::Result> exact = oracle::Exact(p, from, rows);
  if (!exact.ok()) return exact.status();

  std::vector<Accuracy> found;
  const auto add = [&](absl::StatusOr<Accuracy> row) {
    if (row.ok()) found.push_back(*std::move(row));
    return row.status();
  };
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    begins(Name(dtype));
    absl::StatusOr<Tensors> narrow = Narrow(*wide, dtype);
    if (!narrow.ok()) return narrow.status();
    p.dtype = dtype;
    absl::Status s =
        add(Compare(std::string(Name(dtype)), p, device, InputsOf(*narrow), rows, *exact));
    if (!s.ok()) return s;
  }

  p.dtype = DType::kFloat8E4M3;
  p.o_dtype = DType::kFloat16;  // whose rounding is far below that of fp8
  absl::StatusOr<Tensors> narrow = MakeAll(p.dtype, shapes);
  if (!narrow.ok()) return narrow.status();
  const struct {
    const char* name;
    int64_t block;
    bool per_tensor;
  } kScales[] = {
      {"tensor", 0, true}, {"head", 0, false}, {"128 rows", 128, false}, {"64 rows", 64, false}};
  for (const auto& c : kScales) {
    p.scale_block = c.block;
    absl::StatusOr<Tensors> scales = MakeAll(DType::kFloat32, ScaleShapes(p));
    if (!scales.ok()) return scales.status();
    Fp8Tensors to = Fp8Of(*narrow, *scales);
    if (c.per_tensor) to.q_scale.strides = to.k_scale.strides = to.v_scale.strides = {0, 0, 0, 1};
    for (const bool hadamard : {false, true}) {
      const std::string name =
          absl::StrCat("fp8, a scale per ", c.name, hadamard ? ", Hadamard" : "");
      begins(name);
      absl::Status s = Quantize(p, from, to, {hadamard, seed, {}});
      if (!s.ok()) return s;
      s = add(Compare(name, p, device, to.Inputs({}), rows, *exact));
      if (!s.ok()) return s;
    }
  }
  return found;
}

absl::StatusOr<double> FindNeedles(DType dtype, int64_t queries, int64_t keys, Device device,
                                   uint64_t seed) {
  constexpr int64_t kDim = 128;
  constexpr double kScore = 12.5, kPart = 0.25;
  AttentionProblem p;
  p.b = p.hq = p.hkv = 1;
  p.sq = queries, p.skv = keys, p.d = p.dv = kDim;
  p.dtype = DType::kFloat32;
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  const std::vector<std::array<int64_t, 4>> shapes = {
      {1, queries, 1, kDim}, {1, keys, 1, kDim}, {1, keys, 1, kDim}};
  absl::StatusOr<Tensors> wide = MakeAll(DType::kFloat32, shapes);
  if (!wide.ok()) return wide.status();
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (Tensor& t : *wide) {
    auto* const x = static_cast<float*>(t.buffer.data());
    for (int64_t i = 0; i < t.elements(); ++i) x[i] = normal(random);
  }
  // A query points at its needle's key.
  auto* const q = static_cast<float*>((*wide)[0].buffer.data());
  const auto* const k = static_cast<const float*>((*wide)[1].buffer.data());
  const auto* const v = static_cast<const float*>((*wide)[2].buffer.data());
  const auto dot = [](const auto& a, const float* b) {
    double sum = 0;
    for (int64_t c = 0; c < kDim; ++c) sum += double{a(c)} * b[c];
    return sum;
  };
  std::vector<int64_t> needles(queries);
  std::uniform_int_distribution<int64_t> anywhere(0, keys - 1);
  for (int64_t i = 0; i < queries; ++i) {
    needles[i] = anywhere(random);
    const float* const key = k + needles[i] * kDim;
    const double factor = kScore / p.Scale() / dot([&](int64_t c) { return key[c]; }, key);
    for (int64_t c = 0; c < kDim; ++c) q[i * kDim + c] = static_cast<float>(factor * key[c]);
  }

  const bool fp8 = dtype == DType::kFloat8E4M3;
  absl::StatusOr<Tensors> narrow = fp8 ? MakeAll(dtype, shapes) : Narrow(*wide, dtype);
  if (!narrow.ok()) return narrow.status();
  const AttentionTensors from = InputsOf(*wide);
  AttentionTensors t = InputsOf(*narrow);
  p.dtype = dtype;
  Tensors scales;
  if (fp8) {
    p.scale_block = 128;
    absl::StatusOr<Tensors> made = MakeAll(DType::kFloat32, ScaleShapes(p));
    if (!made.ok()) return made.status();
    scales = *std::move(made);
    const Fp8Tensors to = Fp8Of(*narrow, scales);
    if (absl::Status s = Quantize(p, from, to, {/*hadamard=*/true, seed, {}}); !s.ok()) return s;
    t = to.Inputs({});
  }
  absl::StatusOr<Tensor> o = Run(p, device, t, "");
  if (!o.ok()) return o.status();
  int64_t found = 0;
  for (int64_t i = 0; i < queries; ++i) {
    const float* const value = v + needles[i] * kDim;
    const auto of_o = [&](int64_t c) {
      return LoadElement(o->buffer.data(), o->dtype, i * kDim + c);
    };
    found += dot(of_o, value) >= kPart * dot([&](int64_t c) { return value[c]; }, value);
  }
  return static_cast<double>(found) / static_cast<double>(queries);
}

}  // namespace attnlab::fp8
