// What one rank computes of a problem, and how parts become the whole: some queries with some keys, whose O and
// LSE are merged with those of other keys.
#ifndef ATTENTION_MULTI_GPU_PART_H_
#define ATTENTION_MULTI_GPU_PART_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/multi_gpu/communicator.h"
#include "attention/multi_gpu/pieces.h"

namespace attnlab::multi_gpu {

// A sequence's rows of Q and of K, among those of all ranks.
struct Sequence {
  Chunk q, kv;
};
// lens = fixed: one entry, for all sequences. lens = packed: one per sequence, by the offsets in `tensors`, which
// are checked, and must be in host memory wherever the tensors are.
absl::StatusOr<std::vector<Sequence>> SequencesOf(const AttentionProblem& problem,
                                                  const AttentionTensors& tensors);

// Rows [begin, begin + rows) of a view [b, rows, heads, d].
ConstTensorView SomeRows(ConstTensorView view, int64_t begin, int64_t rows);
// The same for heads.
ConstTensorView SomeHeads(ConstTensorView view, int64_t begin, int64_t heads);
// Whether all elements are neighbours.
bool IsDense(const ConstTensorView& t);
TensorView Mutable(const ConstTensorView& view);

// A part of O as it travels: LSE, then O, of all rows of a problem. Both are aligned.
int64_t BytesOfPart(const AttentionProblem& problem);
// Its O and LSE. No other tensor is set.
AttentionTensors PartAt(void* data, const AttentionProblem& problem, Device device);

// Checks the problem. Unimplemented for lens = padded, for lens = packed unless `packed`, for pages and for fp8.
// `who` refuses that.
absl::Status CheckKind(absl::string_view who, const AttentionProblem& problem, bool packed = false);

// The same, and the tensors of a rank that has so many queries and keys of each sequence.
absl::Status CheckPart(absl::string_view who, const AttentionProblem& problem, int64_t rows,
                       int64_t keys, const AttentionTensors& mine, bool packed = false);

// InvalidArgument for a GPU that is not the communicator's.
absl::Status CheckDevice(Device device, const Communicator& c);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_PART_H_
