#include "attention/fp8/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/parallel.h"
#include "attention/cuda/machine.h"
#include "attention/device/arguments_of.h"
#include "attention/fp8/hadamard.h"
#include "attention/fp8/quantize_gpu.h"
#include "attention/fp8/quantize_rows.h"
#include "attention/fp8/rotate.h"

namespace attnlab::fp8 {
namespace {

// Q, K or V.
struct Stream {
  const ConstTensorView& from;
  const TensorView &to, &scales;
  bool is_q;
  QuantizeOptions options;  // of these rows
};

bool IsE5m2(const Stream& stream) { return stream.to.dtype == DType::kFloat8E5M2; }

// Rows [begin, end) of one head of a sequence, of one block.
struct Task {
  int64_t sequence, head, begin, end;
  float largest = 0;  // the largest size of an element or product
  float factor = 1;   // of elements, so that products fit fp16
  float divisor = 1;
};

float RoundToHalf(float x) { return static_cast<float>(Float16(x)); }

// A GPU's NaN has none.
float WithoutSignOfNan(float x) {
  return std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x;
}

class Quantizer {
 public:
  Quantizer(const AttentionProblem& p, const AttentionTensors& from, const Stream& stream)
      : p_(p), from_(from), s_(stream), dim_(stream.from.shape[3]) {
    for (int64_t i = 0; i < p.b; ++i) {
      const Sequence sequence = SequenceOf(p, from, i);
      const int64_t rows = s_.is_q ? sequence.q_len : sequence.kv_len;
      for (int64_t head = 0; head < s_.from.shape[2]; ++head) {
        const int64_t block = p.scale_block == 128 ? 128 : 64;
        for (int64_t row = 0; row < rows; row += block) {
          tasks_.push_back({i, head, row, std::min(rows, row + block)});
        }
      }
    }
  }

  void Run() {
    const bool hadamard = s_.options.hadamard, multiplies = hadamard || Rotates();
    ForEachTask([&](Task& task) {
      task.largest = LargestOf(task, [&](float* row) { Multiply(task, row); });
      if (!multiplies || FitsHalf(task.largest, hadamard)) return;
      task.factor = FactorForHalf(LargestOf(task, [](float*) {}));
      task.largest = LargestOf(task, [&](float* row) { Multiply(task, row); }) / task.factor;
    });
    // Several tasks may share a scale.
    for (const Task& task : tasks_) ScaleOf(task) = 0;
    for (const Task& task : tasks_) Raise(task.largest, &ScaleOf(task));
    const float most = IsE5m2(s_) ? kLargestE5m2 : kLargest,
                least = hadamard ? kLeastOfProducts : kLeastScale,
                factor = hadamard ? HadamardFactor(dim_) : 1;
    for (Task& task : tasks_) {
      const float largest = ScaleOf(task);
      task.divisor = largest < most * least ? least : largest / most;  // NaN stays
    }
    for (const Task& task : tasks_) ScaleOf(task) = WithoutSignOfNan(task.divisor * factor);
    ForEachTask([&](const Task& task) {
      float inverse = 1 / task.divisor;
      if (multiplies) inverse = RoundToHalf(InverseInHalf(inverse, task.factor));
      ForEachRow(task, [&](int64_t r, float* row) {
        Multiply(task, row);
        const int64_t at = Place(s_.to, task, r);
        for (int64_t c = 0; c < dim_; ++c) {
          const float quotient = WithoutSignOfNan(row[c] * inverse);
          StoreElement(s_.to.data, s_.to.dtype, at + c,
                       multiplies ? RoundToHalf(quotient) : quotient);
        }
      });
    });
  }

 private:
  bool Rotates() const { return s_.options.rotary.table.data != nullptr; }

  template <typename Function>
  void ForEachTask(const Function& function) {
    ParallelFor(static_cast<int64_t>(tasks_.size()), CpuInfo().threads,
                [&](int64_t i, int) { function(tasks_[i]); });
  }

  // Calls function(row, elements) with the rows of a task as floats, turned if they are to be.
  template <typename Function>
  void ForEachRow(const Task& task, const Function& function) const {
    std::array<float, AttentionProblem::kMaxHeadDim> row;
    for (int64_t r = task.begin; r < task.end; ++r) {
      const int64_t at = Place(s_.from, task, r);
      for (int64_t i = 0; i < dim_; ++i) row[i] = LoadElement(s_.from.data, s_.from.dtype, at + i);
      if (Rotates()) Rotate(task, r, row.data());
      function(r, row.data());
    }
  }

  // The largest size of an element, after change(row).
  template <typename Function>
  float LargestOf(const Task& task, const Function& change) const {
    float largest = 0;
    ForEachRow(task, [&](int64_t, float* row) {
      change(row);
      for (int64_t c = 0; c < dim_; ++c) Raise(std::abs(row[c]), &largest);
    });
    return largest;
  }

  // A row's products in fp16, if it is turned or multiplied.
  void Multiply(const Task& task, float* row) const {
    if (!s_.options.hadamard && !Rotates()) return;
    for (int64_t i = 0; i < dim_; ++i) row[i] = RoundToHalf(row[i] * task.factor);
    if (s_.options.hadamard) MultiplyByHadamard(row, dim_, s_.options.seed, RoundToHalf);
  }

  void Rotate(const Task& task, int64_t row, float* x) const {
    const ConstTensorView& table = s_.options.rotary.table;
    const Sequence s = SequenceOf(p_, from_, task.sequence);
    const int64_t position = s_.is_q ? s.kv_len - s.q_len + row : row;
    const int64_t half = table.shape[3] / 2;
    const float* const cosines =
        static_cast<const float*>(table.data) +
        std::clamp<int64_t>(position, 0, table.shape[1] - 1) * table.strides[1];
    for (int64_t i = 0; i < half; ++i) {
      const int64_t first = s_.options.rotary.interleaved ? 2 * i : i,
                    second = s_.options.rotary.interleaved ? 2 * i + 1 : i + half;
      Turn(x[first], x[second], cosines[i], cosines[half + i]);
    }
  }

  // The offset of a row's first element.
  template <typename View>
  int64_t Place(const View& view, const Task& task, int64_t row) const {
    const Sequence s = SequenceOf(p_, from_, task.sequence);
    return s_.is_q ? view.Offset(s.q_batch, s.q_begin + row, task.head, 0)
                   : view.Offset(s.kv_batch, s.kv_begin + row, task.head, 0);
  }

  float& ScaleOf(const Task& task) const {
    return static_cast<float*>(
        s_.scales.data)[s_.scales.Offset(task.sequence, p_.ScaleBlockOf(task.begin), task.head, 0)];
  }

  // NaN is above all.
  static void Raise(float size, float* largest) {
    if (!(size <= *largest) && !std::isnan(*largest)) *largest = size;
  }

  const AttentionProblem& p_;
  const AttentionTensors& from_;
  const Stream s_;
  const int64_t dim_;
  std::vector<Task> tasks_;
};

// Rows that code for GPUs reads and writes 16 bytes at a time.
absl::Status CheckRows(absl::string_view name, const ConstTensorView& view) {
  for (const int axis : {0, 1, 2}) {
    const int64_t bytes = view.strides[axis] * SizeOf(view.dtype);
    if (view.shape[axis] > 1 && bytes % 16 != 0) {
      return absl::UnimplementedError(absl::StrCat(
          name, ": a stride of ", bytes, " bytes; on a GPU, it must be a multiple of 16"));
    }
  }
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) {
    return absl::UnimplementedError(
        absl::StrCat(name, ": its address is not a multiple of 16, as it must be on a GPU"));
  }
  return absl::OkStatus();
}

// Packed tensors may have any number of tokens, but rows are written where they are read.
absl::Status ValidateResults(const AttentionProblem& p, const AttentionTensors& from,
                             const Fp8Tensors& to) {
  const Device device = from.q.device;
  const struct {
    const char *name, *scales_name;
    const ConstTensorView& from;
    const TensorView &to, &scales;
    DType dtype;
    int64_t longest;
  } kTensors[] = {{"to.q", "q_scale", from.q, to.q, to.q_scale, p.dtype, p.sq},
                  {"to.k", "k_scale", from.k, to.k, to.k_scale, p.KvDType(), p.skv},
                  {"to.v", "v_scale", from.v, to.v, to.v_scale, p.VDType(), p.skv}};
  std::vector<std::pair<const char*, const void*>> places = {
      {"q", from.q.data}, {"k", from.k.data}, {"v", from.v.data}};
  for (const auto& t : kTensors) {
    absl::Status s = ValidateView(t.name, t.to, t.from.shape, t.dtype, device);
    if (s.ok()) s = ValidateDistinct(t.name, t.to);
    if (!s.ok()) return s;
    const int64_t heads = t.from.shape[2], blocks = p.ScaleBlocks(t.longest);
    if (t.scales.data == nullptr && blocks > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(t.scales_name, " of the scales: a data pointer is null"));
    }
    s = ValidateView(t.scales_name, t.scales, {p.b, blocks, heads, 1}, DType::kFloat32, device);
    if (!s.ok()) return s;
    for (const auto& [name, data] :
         {std::pair(t.name, t.to.data), std::pair(t.scales_name, t.scales.data)}) {
      for (const auto& [other, its] : places) {
        if (data == nullptr || data != its) continue;
        return absl::InvalidArgumentError(absl::StrCat(name, ": shares its address with ", other));
      }
      places.emplace_back(name, data);
    }
  }
  return absl::OkStatus();
}

absl::Status QuantizeThere(const AttentionProblem& p, const AttentionTensors& from,
                           const Stream (&streams)[3], void* stream) {
  for (const Stream& s : streams) {
    const char* const name = &s == streams ? "q" : &s == streams + 1 ? "k" : "v";
    if (s.from.dtype == DType::kFloat32) {
      return absl::UnimplementedError(
          absl::StrCat(name, ": dtype: fp32 is not one of fp16 and bf16, as on a GPU"));
    }
    const int64_t d = s.from.shape[3];
    if (!HasCode(d)) {
      return absl::UnimplementedError(
          absl::StrCat(s.is_q || &s == streams + 1 ? "d" : "dv", ": ", d,
                       " is not one of 64, 96, 128, 192 and 256, for which a GPU has code"));
    }
    absl::Status status = CheckRows(name, s.from);
    if (status.ok()) status = CheckRows(absl::StrCat("to.", name), s.to);
    const ConstTensorView& table = s.options.rotary.table;
    if (status.ok() && table.data != nullptr) {
      status = CheckRows("rotary", table);
      if (table.shape[3] % 16 != 0) {
        status = absl::UnimplementedError(absl::StrCat("rotary: dim ", table.shape[3],
                                                       "; on a GPU, it must be a multiple of 16"));
      }
    }
    if (!status.ok()) return status;
  }
  const device::Arguments arguments = device::ArgumentsOf(p, from);
  std::vector<QuantizeRows> tensors;
  for (const Stream& s : streams) {
    AttentionTensors of = from;
    of.q = s.from, of.o = s.to;  // for their strides
    const device::Arguments rows = device::ArgumentsOf(p, of);
    QuantizeRows a;
    a.from = rows.q;
    a.to = rows.o;
    a.scales = static_cast<float*>(s.scales.data);
    a.sequences = s.is_q ? arguments.q_sequences : arguments.kv_sequences;
    a.kv_sequences = arguments.kv_sequences;
    a.b = p.b;
    a.heads = static_cast<int32_t>(s.from.shape[2]);
    a.d = static_cast<int32_t>(s.from.shape[3]);
    a.block = p.scale_block == 128 ? 128 : 64;
    const int64_t longest = s.is_q ? p.sq : p.skv, blocks = (longest + a.block - 1) / a.block;
    if (longest == 0 || p.b == 0) continue;
    if (blocks * p.b * a.heads > std::numeric_limits<int32_t>::max()) {
      return absl::UnimplementedError(absl::StrCat("b: ", p.b, " sequences of ", blocks,
                                                   " blocks in ", a.heads,
                                                   " heads are above 2^31 - 1"));
    }
    a.blocks = static_cast<int32_t>(blocks);
    // One for all along an axis of length 1.
    const int64_t scales[] = {p.b, p.ScaleBlocks(longest), a.heads};
    bool one_of_each = p.scale_block != 0 || blocks == 1;
    for (const int axis : {0, 1, 2}) {
      a.scale_strides[axis] = scales[axis] > 1 ? s.scales.strides[axis] : 0;
      one_of_each &= scales[axis] == 1 || s.scales.strides[axis] != 0;
    }
    a.one_scale = !one_of_each && blocks * p.b * a.heads > 1;
    a.e5m2 = IsE5m2(s);
    a.hadamard = s.options.hadamard;
    a.seed = s.options.seed;
    const Rotary& rotary = s.options.rotary;
    if (rotary.table.data != nullptr) {
      a.table = static_cast<const float*>(rotary.table.data);
      a.position_stride = rotary.table.strides[1];
      a.positions = rotary.table.shape[1];
      a.rotary_dim = static_cast<int32_t>(rotary.table.shape[3]);
      a.interleaved = rotary.interleaved;
    }
    tensors.push_back(a);
  }
  return QuantizeOnGpu(from.q.device.ordinal, tensors, from.q.dtype, stream);
}

}  // namespace

AttentionTensors Fp8Tensors::Inputs(AttentionTensors from) const {
  from.q = q, from.k = k, from.v = v;
  from.q_scale = q_scale, from.k_scale = k_scale, from.v_scale = v_scale;
  return from;
}

absl::Status Quantize(const AttentionProblem& problem, const AttentionTensors& from,
                      const Fp8Tensors& to, const QuantizeOptions& options, void* stream) {
  if (absl::Status s = problem.Validate(); !s.ok()) return s;
  if (problem.dtype != DType::kFloat8E4M3) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: ", Name(problem.dtype), " is not fp8_e4m3"));
  }
  if (problem.page != 0) {
    return absl::UnimplementedError(
        absl::StrCat("page: ", problem.page, "; pages are not supported, only page = 0"));
  }
  AttentionProblem wide = problem;
  wide.dtype = from.q.dtype;
  wide.kv_dtype = wide.v_dtype = wide.o_dtype = {};
  wide.scale_block = 0;
  if (IsFp8(wide.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("q: dtype is ", Name(wide.dtype), ", must be fp32, fp16 or bf16"));
  }
  if (absl::Status s = ValidateInputs(wide, from); !s.ok()) return s;
  if (absl::Status s = ValidateResults(problem, from, to); !s.ok()) return s;
  if (absl::Status s = ValidateRotary(problem, options.rotary, from.q.device); !s.ok()) return s;

  const Stream streams[] = {
      {from.q, to.q, to.q_scale, /*is_q=*/true, options},
      {from.k, to.k, to.k_scale, /*is_q=*/false, options},
      {from.v, to.v, to.v_scale, /*is_q=*/false, {}},
  };
  if (from.q.device.kind == DeviceKind::kCuda) return QuantizeThere(problem, from, streams, stream);
  for (const Stream& rows : streams) Quantizer(problem, from, rows).Run();
  return absl::OkStatus();
}

}  // namespace attnlab::fp8
