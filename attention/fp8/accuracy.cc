#include "attention/fp8/accuracy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

// Runs the default kernel and compares O.
absl::StatusOr<Accuracy> Compare(std::string name, const AttentionProblem& p, Device device,
                                 AttentionTensors t, const std::vector<oracle::Row>& rows,
                                 const oracle::Result& exact) {
  absl::StatusOr<Plan> plan = MakePlan(p, device);
  if (!plan.ok()) return plan.status();
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
  if (absl::Status s = ForwardOnce(p, t, plan->kernel->traits().name); !s.ok()) return s;
  if (!there.empty()) {
    absl::Status s = there.back().CopyToHost(o->buffer.data(), o->buffer.bytes());
    if (!s.ok()) return s;
  }
  Accuracy found;
  found.name = std::move(name);
  found.kernel = plan->kernel->traits().name;
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

}  // namespace

absl::StatusOr<std::vector<Accuracy>> MeasureAccuracy(const AttentionProblem& problem,
                                                      Device device, uint64_t seed) {
  AttentionProblem p = problem;
  p.lens = Lengths::kFixed;
  p.page = p.scale_block = 0;
  p.kv_dtype = p.o_dtype = {};
  p.dtype = DType::kFloat32;
  if (absl::Status s = p.Validate(); !s.ok()) return s;
  const std::vector<std::array<int64_t, 4>> shapes = {
      {p.b, p.sq, p.hq, p.d}, {p.b, p.skv, p.hkv, p.d}, {p.b, p.skv, p.hkv, p.dv}};
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
    absl::StatusOr<Tensors> narrow = MakeAll(dtype, shapes);
    if (!narrow.ok()) return narrow.status();
    for (size_t i = 0; i < narrow->size(); ++i) {
      const auto* const x = static_cast<const float*>((*wide)[i].buffer.data());
      for (int64_t j = 0; j < (*wide)[i].elements(); ++j) {
        StoreElement((*narrow)[i].buffer.data(), dtype, j, x[j]);
      }
    }
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
    absl::StatusOr<Tensors> scales =
        MakeAll(DType::kFloat32, {{p.b, p.ScaleBlocks(p.sq), p.hq, 1},
                                  {p.b, p.ScaleBlocks(p.skv), p.hkv, 1},
                                  {p.b, p.ScaleBlocks(p.skv), p.hkv, 1}});
    if (!scales.ok()) return scales.status();
    Fp8Tensors to = {(*narrow)[0].View(), (*narrow)[1].View(), (*narrow)[2].View(),
                     (*scales)[0].View(), (*scales)[1].View(), (*scales)[2].View()};
    if (c.per_tensor) to.q_scale.strides = to.k_scale.strides = to.v_scale.strides = {0, 0, 0, 1};
    for (const bool hadamard : {false, true}) {
      absl::Status s = Quantize(p, from, to, {hadamard, seed});
      if (!s.ok()) return s;
      const std::string name =
          absl::StrCat("fp8, a scale per ", c.name, hadamard ? ", Hadamard" : "");
      s = add(Compare(name, p, device, to.Inputs({}), rows, *exact));
      if (!s.ok()) return s;
    }
  }
  return found;
}

}  // namespace attnlab::fp8
