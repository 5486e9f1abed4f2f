#include "attention/fp8/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/core/dtype.h"
#include "attention/core/parallel.h"
#include "attention/cuda/machine.h"
#include "attention/fp8/hadamard.h"

namespace attnlab::fp8 {
namespace {

constexpr float kLargest = 448;  // of fp8_e4m3
constexpr int64_t kRows = 64;    // of a task: of one head, and of at most one block

// Q, K or V.
struct Stream {
  const ConstTensorView& from;
  const TensorView &to, &scales;
  bool is_q, hadamard;
};

// Rows [begin, end) of one head of a sequence.
struct Task {
  int64_t sequence, head, begin, end;
};

class Quantizer {
 public:
  Quantizer(const AttentionProblem& p, const AttentionTensors& from, const Stream& stream,
            uint64_t seed)
      : p_(p), from_(from), s_(stream), seed_(seed), dim_(stream.from.shape[3]) {
    for (int64_t i = 0; i < p.b; ++i) {
      const Sequence sequence = SequenceOf(p, from, i);
      const int64_t rows = s_.is_q ? sequence.q_len : sequence.kv_len;
      for (int64_t head = 0; head < s_.from.shape[2]; ++head) {
        for (int64_t row = 0; row < rows; row += kRows) {
          tasks_.push_back({i, head, row, std::min(rows, row + kRows)});
        }
      }
    }
  }

  void Run() {
    std::vector<float> scale(tasks_.size());  // at first the largest size of an element
    ForEachTask([&](int64_t i) {
      ForEachRow(tasks_[i], [&](int64_t, const float* row) {
        for (int64_t c = 0; c < dim_; ++c) Raise(std::abs(row[c]), &scale[i]);
      });
    });
    // Several tasks may share a scale.
    for (const Task& task : tasks_) ScaleOf(task) = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) Raise(scale[i], &ScaleOf(tasks_[i]));
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const float largest = ScaleOf(tasks_[i]);
      scale[i] = largest == 0 ? 1 : largest / kLargest;
    }
    for (size_t i = 0; i < tasks_.size(); ++i) ScaleOf(tasks_[i]) = scale[i];
    ForEachTask([&](int64_t i) {
      ForEachRow(tasks_[i], [&](int64_t r, const float* row) {
        auto* const to = static_cast<Float8E4M3*>(s_.to.data) + Place(s_.to, tasks_[i], r);
        for (int64_t c = 0; c < dim_; ++c) to[c] = Float8E4M3(row[c] / scale[i]);
      });
    });
  }

 private:
  template <typename Function>
  void ForEachTask(const Function& function) {
    ParallelFor(static_cast<int64_t>(tasks_.size()), CpuInfo().threads,
                [&](int64_t i, int) { function(i); });
  }

  // Calls function(row, elements) with the rows of a task as floats, multiplied if they are to be.
  template <typename Function>
  void ForEachRow(const Task& task, const Function& function) const {
    std::array<float, AttentionProblem::kMaxHeadDim> row;
    for (int64_t r = task.begin; r < task.end; ++r) {
      const int64_t at = Place(s_.from, task, r);
      for (int64_t i = 0; i < dim_; ++i) row[i] = LoadElement(s_.from.data, s_.from.dtype, at + i);
      if (s_.hadamard) MultiplyByHadamard(row.data(), dim_, seed_);
      function(r, row.data());
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
  const uint64_t seed_;
  const int64_t dim_;
  std::vector<Task> tasks_;
};

}  // namespace

AttentionTensors Fp8Tensors::Inputs(AttentionTensors from) const {
  from.q = q, from.k = k, from.v = v;
  from.q_scale = q_scale, from.k_scale = k_scale, from.v_scale = v_scale;
  return from;
}

absl::Status Quantize(const AttentionProblem& problem, const AttentionTensors& from,
                      const Fp8Tensors& to, const QuantizeOptions& options) {
  if (absl::Status s = problem.Validate(); !s.ok()) return s;
  if (problem.dtype != DType::kFloat8E4M3) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: ", Name(problem.dtype), " is not fp8_e4m3"));
  }
  if (problem.page != 0) {
    return absl::UnimplementedError(
        absl::StrCat("page: ", problem.page, "; pages are not supported, only page = 0"));
  }
  if (from.q.device.kind != DeviceKind::kCpu) {
    return absl::UnimplementedError(
        absl::StrCat("q: on ", ToString(from.q.device), "; only the CPU is supported"));
  }
  AttentionProblem wide = problem;
  wide.dtype = from.q.dtype;
  wide.o_dtype = {};
  wide.scale_block = 0;
  if (wide.dtype == DType::kFloat8E4M3) {
    return absl::InvalidArgumentError("q: dtype is fp8_e4m3, must be fp32, fp16 or bf16");
  }
  if (absl::Status s = ValidateInputs(wide, from); !s.ok()) return s;
  for (const TensorView* scales : {&to.q_scale, &to.k_scale, &to.v_scale}) {
    if (scales->data == nullptr)
      return absl::InvalidArgumentError("scales: a data pointer is null");
  }
  if (absl::Status s = ValidateInputs(problem, to.Inputs(from)); !s.ok()) return s;

  const Stream kStreams[] = {
      {from.q, to.q, to.q_scale, /*is_q=*/true, options.hadamard},
      {from.k, to.k, to.k_scale, /*is_q=*/false, options.hadamard},
      {from.v, to.v, to.v_scale, /*is_q=*/false, /*hadamard=*/false},
  };
  for (const Stream& stream : kStreams) Quantizer(problem, from, stream, options.seed).Run();
  return absl::OkStatus();
}

}  // namespace attnlab::fp8
