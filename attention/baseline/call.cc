#include "attention/baseline/call.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "attention/baseline/as_matrices.h"
#include "attention/baseline/gemm.h"
#include "attention/baseline/permute.h"
#include "attention/baseline/softmax.h"
#include "attention/cuda/call.h"
#include "attention/device/element.h"
#include "attention/device/element_of.h"
#include "attention/device/sequences.h"
#include "cuda_runtime_api.h"

namespace attnlab::baseline {
namespace {

Rows RowsOf(const ConstTensorView& view) {
  return {const_cast<void*>(view.data), device::ElementOf(view.dtype), view.strides[0],
          view.strides[1], view.strides[2]};
}

Matrices At(const Matrices& m, int64_t matrix, int64_t size) {
  return {static_cast<char*>(m.data) + matrix * m.stride * size, m.stride, m.row_stride};
}

// One call: the steps over the tensors of one problem.
class Call {
 public:
  Call(const AttentionProblem& problem, const AttentionTensors& tensors, const Launch& launch,
       int ordinal, const Options& options, const Layout& layout)
      : p_(problem),
        t_(tensors),
        launch_(launch),
        ordinal_(ordinal),
        options_(options),
        layout_(layout),
        stream_(static_cast<cudaStream_t>(launch.stream)),
        workspace_(static_cast<char*>(launch.workspace.data)),
        element_size_(device::SizeOf(layout_.element)) {
    q_sequences_ = {t_.cu_seqlens_q.data, t_.q_len.data, p_.sq, t_.q.shape[1]};
    kv_sequences_ = {t_.cu_seqlens_kv.data, t_.kv_len.data, p_.skv, t_.k.shape[1]};
  }

  absl::Status Run() {
    if (p_.sq == 0) return absl::OkStatus();
    absl::StatusOr<Gemm> gemm =
        Gemm::Make(ordinal_, stream_, workspace_ + layout_.cublas, layout_.cublas_bytes);
    if (!gemm.ok()) return gemm.status();

    absl::StatusOr<Matrices> q = Input(t_.q, q_sequences_, layout_.q, layout_.q_stride, Group());
    absl::StatusOr<Matrices> k = Input(t_.k, kv_sequences_, layout_.k, layout_.q_stride, 1);
    absl::StatusOr<Matrices> v = Input(t_.v, kv_sequences_, layout_.v, layout_.v_stride, 1);
    for (const absl::StatusOr<Matrices>* m : {&q, &k, &v}) {
      if (!m->ok()) return m->status();
    }
    // Without keys no product writes O. Its matrices are then zeros in scratch memory.
    absl::optional<Matrices> o = p_.skv > 0 ? InPlace(t_.o, Group()) : absl::nullopt;
    const bool permute_o = !o.has_value();
    if (permute_o) o = Scratch(layout_.o, p_.sq * Group(), layout_.v_stride);
    if (p_.skv == 0) {
      absl::Status s = Zero(o->data, p_.b * p_.hkv * o->stride * element_size_);
      if (!s.ok()) return s;
    }
    for (int64_t first = 0; first < p_.b * p_.hkv; first += options_.heads) {
      const int64_t count = std::min(options_.heads, p_.b * p_.hkv - first);
      if (absl::Status s = Pass(*gemm, first, count, *q, *k, *v, *o); !s.ok()) return s;
    }
    if (!permute_o) return absl::OkStatus();
    return Copy(PermuteTask::Direction::kToTensor, t_.o, q_sequences_, *o, p_.sq, p_.dv);
  }

 private:
  int64_t Group() const { return p_.GroupSize(); }

  absl::Status Zero(void* data, int64_t bytes) const {
    return cuda_backend::ToStatus(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream_),
                                  "cudaMemsetAsync");
  }

  Matrices Scratch(int64_t offset, int64_t rows, int64_t row_stride) const {
    return {workspace_ + offset, rows * row_stride, row_stride};
  }

  // The tensor where it lies, if matrix products can take it as it is.
  absl::optional<Matrices> InPlace(const ConstTensorView& view, int64_t group) const {
    if (options_.always_permute || p_.lens != Lengths::kFixed) return absl::nullopt;
    if (device::ElementOf(view.dtype) != layout_.element) return absl::nullopt;
    return AsMatrices(view, group);
  }

  // Steps 1 and 6: copies between the tensor and scratch memory, which has one matrix of `length`
  // rows per head of the tensor.
  absl::Status Copy(PermuteTask::Direction direction, const ConstTensorView& view,
                    const device::Sequences& sequences, const Matrices& scratch, int64_t length,
                    int64_t columns) const {
    PermuteTask task;
    task.direction = direction;
    task.tensor = RowsOf(view);
    task.matrices = {scratch.data, length * scratch.row_stride, scratch.row_stride};
    task.matrix_element = layout_.element;
    task.heads = view.shape[2];
    task.count = p_.b * task.heads;
    task.length = length;
    task.columns = columns;
    task.sequences = sequences;
    return cuda_backend::ToStatus(Permute(task, options_.permute_block, stream_), "permute");
  }

  // An input as matrices, one per (sequence, KV head).
  absl::StatusOr<Matrices> Input(const ConstTensorView& view, const device::Sequences& sequences,
                                 int64_t offset, int64_t row_stride, int64_t group) const {
    if (absl::optional<Matrices> m = InPlace(view, group)) return *m;
    const int64_t length = sequences.longest;
    const Matrices scratch = Scratch(offset, length * group, row_stride);
    absl::Status s =
        Copy(PermuteTask::Direction::kToMatrices, view, sequences, scratch, length, view.shape[3]);
    if (!s.ok()) return s;
    return scratch;
  }

  // Copies S or P of a pass to the caller's tensor.
  absl::Status Give(const TensorView& view, const ScoreRows& rows, const Matrices& from,
                    device::Element element) const {
    PermuteTask task;
    task.direction = PermuteTask::Direction::kToTensor;
    task.tensor = RowsOf(view);
    task.matrices = {from.data, p_.sq * from.row_stride, from.row_stride};
    task.matrix_element = element;
    task.first = rows.first;
    task.count = rows.count;
    task.heads = p_.hq;
    task.length = p_.sq;
    task.columns = p_.skv;
    task.sequences = q_sequences_;
    return cuda_backend::ToStatus(Permute(task, options_.permute_block, stream_), "intermediates");
  }

  // Steps 2 to 5 for `count` (sequence, KV head) pairs.
  absl::Status Pass(Gemm& gemm, int64_t first, int64_t count, const Matrices& q, const Matrices& k,
                    const Matrices& v, const Matrices& o) const {
    const int64_t rows_of_head = Group() * p_.sq;
    const Matrices scores = Scratch(layout_.scores, rows_of_head, layout_.score_stride);
    const bool in_place = layout_.probabilities == layout_.scores;
    const int64_t p_stride = in_place ? layout_.score_stride : layout_.probability_stride;
    const Matrices probabilities = Scratch(layout_.probabilities, rows_of_head, p_stride);

    Product product;
    product.count = count;
    product.m = rows_of_head;
    product.n = p_.skv;
    product.k = p_.d;
    product.input = layout_.element;
    product.a = At(q, first, element_size_);
    product.b = At(k, first, element_size_);
    product.c = scores;
    product.transpose_b = true;
    product.tf32 = options_.tf32;
    absl::Status s = p_.skv > 0 ? gemm.Run(product) : absl::OkStatus();
    if (!s.ok()) return s;

    ScoreRows rows;
    rows.first = first * Group();
    rows.count = count * Group();
    rows.hq = p_.hq;
    rows.sq = p_.sq;
    rows.skv = p_.skv;
    rows.mask = p_.mask;
    rows.q = q_sequences_;
    rows.kv = kv_sequences_;
    const ScoreTransform transform = {p_.Scale(), p_.softcap};
    // If the caller wants the scores, step 3 must write them.
    const bool fused = options_.fused && launch_.intermediates.scores.data == nullptr;
    if (!fused) {
      s = cuda_backend::ToStatus(ScaleAndMask(rows, transform, static_cast<float*>(scores.data),
                                              scores.row_stride, options_.softmax_block, stream_),
                                 "scale and mask");
    }
    if (s.ok() && launch_.intermediates.scores.data != nullptr) {
      s = Give(launch_.intermediates.scores, rows, scores, device::Element::kFloat32);
    }
    if (!s.ok()) return s;

    SoftmaxTask softmax;
    softmax.rows = rows;
    softmax.scores = static_cast<const float*>(scores.data);
    softmax.score_stride = scores.row_stride;
    softmax.probabilities = probabilities.data;
    softmax.element = layout_.element;
    softmax.probability_stride = p_stride;
    softmax.lse = static_cast<float*>(t_.lse.data);
    softmax.lse_batch_stride = t_.lse.strides[0];
    softmax.lse_row_stride = t_.lse.strides[1];
    softmax.lse_head_stride = t_.lse.strides[2];
    softmax.fused = fused;
    softmax.transform = transform;
    s = cuda_backend::ToStatus(Softmax(softmax, options_.softmax_block, stream_), "softmax");
    if (s.ok() && launch_.intermediates.probabilities.data != nullptr) {
      s = Give(launch_.intermediates.probabilities, rows, probabilities, layout_.element);
    }
    if (!s.ok() || p_.skv == 0) return s;

    product.n = p_.dv;
    product.k = p_.skv;
    product.output = layout_.element;
    product.a = probabilities;
    product.b = At(v, first, element_size_);
    product.c = At(o, first, element_size_);
    product.transpose_b = false;
    return gemm.Run(product);
  }

  const AttentionProblem& p_;
  const AttentionTensors& t_;
  const Launch& launch_;
  const int ordinal_;
  const Options& options_;
  const Layout& layout_;
  const cudaStream_t stream_;
  char* const workspace_;
  const int64_t element_size_;
  device::Sequences q_sequences_, kv_sequences_;
};

}  // namespace

absl::Status RunCall(const AttentionProblem& problem, const AttentionTensors& tensors,
                     const Launch& launch, int ordinal, const Options& options,
                     const Layout& layout) {
  const cuda_backend::ScopedDevice current(ordinal);
  if (!current.status().ok()) return current.status();
  return Call(problem, tensors, launch, ordinal, options, layout).Run();
}

}  // namespace attnlab::baseline
