// Where the data of an attention problem lies, and checks that it fits the problem.
#ifndef ATTENTION_CORE_TENSORS_H_
#define ATTENTION_CORE_TENSORS_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"

namespace attnlab {

// The arguments of a forward pass. All are on one device; the views say which.
//
//   lens =    fixed, padded            packed                    any, with pages
//   q         [b, sq, hq, d]           [1, tokens_q, hq, d]
//   k         [b, skv, hkv, d]         [1, tokens_kv, hkv, d]    [pages, page, hkv, d]
//   v         [b, skv, hkv, dv]        [1, tokens_kv, hkv, dv]   [pages, page, hkv, dv]
//   o         [b, sq, hq, dv]          [1, tokens_q, hq, dv]
//   lse       [b, sq, hq, 1], fp32     [1, tokens_q, hq, 1], fp32
//
// `lse` is optional: a null data pointer means that it is not wanted. O and LSE of rows that no
// sequence uses (beyond q_len[b], or beyond the last offset cu_seqlens_q[b]) are not written. K and
// V beyond kv_len[b] have no influence, whatever their bits, even if a kernel reads them.
//
// O and LSE must not share memory with each other or with an input. Validation finds equal
// addresses. It accepts other overlaps, because strided views may interleave: keeping those apart
// is up to the caller. Scratch is one block of memory, and ValidateScratch() finds every overlap
// with it.
struct AttentionTensors {
  ConstTensorView q, k, v;
  TensorView o;
  TensorView lse;

  // lens = packed: b + 1 offsets in tokens, starting at 0 and never decreasing. Sequence i has the
  // tokens [cu_seqlens[i], cu_seqlens[i + 1]), at most sq (skv) of them.
  LengthsView cu_seqlens_q, cu_seqlens_kv;

  // lens = padded: b lengths, 0 to sq and 0 to skv. Either may be null: all of sq, all of skv.
  // lens = packed with pages: kv_len replaces cu_seqlens_kv.
  LengthsView q_len, kv_len;

  // page != 0: entry [i, j] is the page that holds keys [j * page, (j + 1) * page) of sequence i,
  // as an index into the first axis of K and V. There are b rows of at least Pages(skv) entries.
  // Entries beyond a sequence's length are not read.
  PageTableView page_table;

  // Scales, if Q, or K and V, are fp8: an element stands for its value times the scale of its
  // sequence, block of rows, and head. fp32, q_scale [b, ScaleBlocks(sq), hq, 1], k_scale and v_scale
  // [b, ScaleBlocks(skv), hkv, 1]; a stride of 0 gives one scale to several, or to the whole tensor. Blocks
  // begin with each sequence's first row, however the rows lie. They are positive. Null: all 1. P of fp8 is
  // in proportion to the scale of V, so a block of zeros should have a small one. O is never scaled.
  ConstTensorView q_scale, k_scale, v_scale;
};

// Checks that the tensors fit the problem. InvalidArgument names the tensor, the value and the
// limit. It is returned for
//   - wrong shapes, dtypes or devices;
//   - null pointers, and pointers not aligned to their element;
//   - a dim axis that is not contiguous, and negative strides;
//   - outputs whose elements overlap or that share an address with an input;
//   - lengths or a page table that are missing, and these or scales that are wrong, or given where they
//     do not apply.
// OutOfRange if strides reach beyond 2^60 bytes.
//
// Lengths, page tables and scales on the host are read and checked too. On a device this would mean waiting
// for it, so kernels there clamp what they read to the tensors and write nothing out of bounds.
absl::Status ValidateTensors(const AttentionProblem& problem, const AttentionTensors& tensors);

// Of ValidateTensors(), what it says of O and LSE but their shapes: no two of their elements lie in one place,
// and neither begins where the other or an input does.
absl::Status ValidateOutputs(const AttentionTensors& tensors);

// ValidateTensors() without O and LSE, which may be anything.
absl::Status ValidateInputs(const AttentionProblem& problem, const AttentionTensors& tensors);

// Checks one view: dtype, shape, device, address and strides, with the errors above.
absl::Status ValidateView(absl::string_view name, const ConstTensorView& view,
                          const std::array<int64_t, 4>& shape, DType dtype, Device device);

// InvalidArgument if two elements of a view may lie in one place. They may lie in any order.
absl::Status ValidateDistinct(absl::string_view name, const TensorView& view);

// ValidateTensors() for one more output, `name`, with the problem's rows: fp32 with the shape of O but
// `columns` in place of dv, on the device of the tensors.
absl::Status ValidateRows(const AttentionProblem& problem, const AttentionTensors& tensors,
                          absl::string_view name, const TensorView& view, int64_t columns);

// InvalidArgument if scratch memory named `name`, `bytes` bytes at `scratch`, overlaps a tensor,
// lengths, page table or scales. Gaps between elements may be shared. A view whose own elements
// interleave counts as one block.
absl::Status ValidateScratch(const AttentionTensors& tensors, absl::string_view name,
                             const void* scratch, int64_t bytes);

// The same for one more output of the call: `view`, named `view_name`.
absl::Status ValidateScratch(absl::string_view view_name, const ConstTensorView& view,
                             absl::string_view name, const void* scratch, int64_t bytes);

// Checks `count` sequence lengths on the host, each 0 to `longest`. InvalidArgument names the list,
// the entry and the limit.
absl::Status CheckLengths(absl::string_view name, absl::Span<const int32_t> lengths, int64_t count,
                          int64_t longest);

// The tokens of sequence `i`, for host code. The lengths must have passed ValidateTensors().
struct Sequence {
  int64_t q_batch, q_begin, q_len;     // indices into Q, O and LSE
  int64_t kv_batch, kv_begin, kv_len;  // indices into K and V; with pages into the page table
};
Sequence SequenceOf(const AttentionProblem& problem, const AttentionTensors& tensors, int64_t i);

// Where a key lies, for host code: indices into the batch and sequence axes of K and V.
struct KeyPlace {
  int64_t batch, row;
};
inline KeyPlace PlaceOf(const AttentionProblem& problem, const AttentionTensors& tensors,
                        const Sequence& sequence, int64_t key) {
  if (problem.page == 0) return {sequence.kv_batch, sequence.kv_begin + key};
  const PageTableView& table = tensors.page_table;
  return {table.data[sequence.kv_batch * table.row_stride + key / problem.page],
          key % problem.page};
}

// The scale of row `row` of a sequence's head, of q_scale, k_scale or v_scale on the host; 1 without
// scales.
inline float ScaleOf(const AttentionProblem& problem, const ConstTensorView& scales,
                     int64_t sequence, int64_t head, int64_t row = 0) {
  if (scales.data == nullptr) return 1;
  return static_cast<const float*>(
      scales.data)[scales.Offset(sequence, problem.ScaleBlockOf(row), head, 0)];
}

}  // namespace attnlab

#endif  // ATTENTION_CORE_TENSORS_H_
