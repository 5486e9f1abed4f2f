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
// are checked.
absl::StatusOr<std::vector<Sequence>> SequencesOf(const AttentionProblem& problem,
                                                  const AttentionTensors& tensors);

// Rows [begin, begin + rows) of a view [b, rows, heads, d].
ConstTensorView SomeRows(ConstTensorView view, int64_t begin, int64_t rows);
// The same for heads.
ConstTensorView SomeHeads(ConstTensorView view, int64_t begin, int64_t heads);
TensorView Mutable(const ConstTensorView& view);

// A part of O as it travels: LSE, then O, of all rows of a problem. Both are aligned.
int64_t BytesOfPart(const AttentionProblem& problem);
// Its O and LSE. No other tensor is set.
AttentionTensors PartAt(void* data, const AttentionProblem& problem, Device device);

// What is supported besides lens = fixed in host memory.
struct Supported {
  bool packed = false;  // in host memory: offsets are where Q is
  bool gpu = false;
};

// Checks the problem. Unimplemented for lens = padded, for lens = packed and for Q on a GPU unless supported, for
// pages and for fp8. `who` refuses that.
absl::Status CheckKind(absl::string_view who, const AttentionProblem& problem,
                       const AttentionTensors& mine, Supported supported = {});

// The same, and the tensors of a rank that has so many queries and keys of each sequence.
absl::Status CheckPart(absl::string_view who, const AttentionProblem& problem, int64_t rows,
                       int64_t keys, const AttentionTensors& mine, Supported supported = {});

// InvalidArgument for a GPU that is not the communicator's.
absl::Status CheckDevice(Device device, const Communicator& c);

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_PART_H_
