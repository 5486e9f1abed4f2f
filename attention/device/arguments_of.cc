#include "attention/device/arguments_of.h"

#include <algorithm>
#include <cstdint>

#include "attention/core/dtype.h"
#include "attention/core/tensor.h"

namespace attnlab::device {
namespace {

constexpr int64_t kChunkBytes = 16;

Rows RowsOf(const ConstTensorView& view) {
  Rows rows;
  rows.data = const_cast<void*>(view.data);
  rows.batch_stride = view.strides[0];
  rows.token_stride = view.strides[1];
  rows.head_stride = view.strides[2];
  rows.whole_chunks = reinterpret_cast<uintptr_t>(view.data) % kChunkBytes == 0 &&
                      view.shape[3] * SizeOf(view.dtype) % kChunkBytes == 0;
  for (int axis = 0; axis < 3; ++axis) {
    // The stride of an axis of length 1 has no meaning.
    rows.whole_chunks &=
        view.shape[axis] <= 1 || view.strides[axis] * SizeOf(view.dtype) % kChunkBytes == 0;
  }
  return rows;
}

Sequences SequencesOf(const int32_t* offsets, const int32_t* lengths, int64_t longest,
                      int64_t tokens) {
  Sequences s;
  s.offsets = offsets;
  s.lengths = lengths;
  s.longest = longest;
  s.tokens = tokens;
  return s;
}

Pages PagesOf(const AttentionProblem& problem, const AttentionTensors& tensors) {
  Pages pages;
  if (problem.page == 0) return pages;
  pages.table = tensors.page_table.data;
  pages.row_stride = tensors.page_table.row_stride;
  pages.last = static_cast<uint32_t>(std::max<int64_t>(1, tensors.k.shape[0]) - 1);
  for (pages.shift = 0; int64_t{1} << pages.shift < problem.page;) ++pages.shift;
  return pages;
}

}  // namespace

Arguments ArgumentsOf(const AttentionProblem& problem, const AttentionTensors& tensors) {
  Arguments a;
  a.q = RowsOf(tensors.q);
  a.k = RowsOf(tensors.k);
  a.v = RowsOf(tensors.v);
  a.o = RowsOf(tensors.o);
  if (tensors.lse.data != nullptr) a.lse = RowsOf(tensors.lse);
  a.q_sequences =
      SequencesOf(tensors.cu_seqlens_q.data, tensors.q_len.data, problem.sq, tensors.q.shape[1]);
  a.kv_sequences =
      SequencesOf(tensors.cu_seqlens_kv.data, tensors.kv_len.data, problem.skv, tensors.k.shape[1]);
  a.pages = PagesOf(problem, tensors);
  // Without pages no key exists, whatever lengths on the device say.
  if (problem.page != 0 && tensors.k.shape[0] == 0) a.kv_sequences.longest = 0;
  a.mask = problem.mask;
  a.b = problem.b;
  a.hq = static_cast<int32_t>(problem.hq);
  a.group = Divisor(static_cast<uint32_t>(problem.GroupSize()));
  a.d = static_cast<int32_t>(problem.d);
  a.dv = static_cast<int32_t>(problem.dv);
  a.scale = problem.Scale();
  a.softcap = problem.softcap;
  if (a.softcap != 0) a.scale_by_softcap = a.scale / a.softcap;
  return a;
}

}  // namespace attnlab::device
