// Steps 3 and 4: from the scores Q Kᵀ to the probabilities.
//
// The scores are fp32 matrices, one row a query: row i of (sequence, head) stands at
// scores[((sequence * heads + head) * sq + i) * stride]. They are worked on in passes of some of
// the (sequence, KV head) pairs, so that they need not all be in memory at once.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_BASELINE_SOFTMAX_H_
#define ATTENTION_BASELINE_SOFTMAX_H_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/element.h"
#include "attention/device/sequences.h"
#include "cuda_runtime.h"

namespace attnlab::baseline {

// What the rows of a pass are rows of.
struct ScoreRows {
  int64_t first = 0;  // of the (sequence, query head) pairs: sequence * hq + head
  int64_t count = 0;  // of them
  int64_t hq = 1;
  int64_t sq = 0, skv = 0;
  Mask mask;
  device::Sequences q, kv;
};

// What is done to a score before the softmax: s = scale * s, s = softcap * tanh(s / softcap) where
// there is a cap.
struct ScoreTransform {
  float scale = 1;
  float softcap = 0;  // 0: none
};

// Step 3, in place: scores that the mask hides become minus infinity, and with them the rows that
// no sequence uses.
cudaError_t ScaleAndMask(const ScoreRows& rows, const ScoreTransform& transform, float* scores,
                         int64_t stride, int block, cudaStream_t stream);

struct SoftmaxTask {
  ScoreRows rows;
  const float* scores = nullptr;
  int64_t score_stride = 0;  // elements from row to row
  // In `element`, rounded; may be the scores' memory where that is fp32. Zero where the score is
  // minus infinity.
  void* probabilities = nullptr;
  device::Element element = device::Element::kFloat32;
  int64_t probability_stride = 0;
  // fp32, natural log; null: not wanted. Rows that no sequence uses are not written.
  float* lse = nullptr;
  int64_t lse_batch_stride = 0, lse_row_stride = 0, lse_head_stride = 0;
  // Step 3 as part of step 4: one pass over the scores less.
  bool fused = false;
  ScoreTransform transform;
};

// Step 4: a block a row. A row of up to kRowInRegisters * block elements is read once, a longer one
// twice. Strides are multiples of 4 elements, addresses of 16 bytes.
constexpr int kRowInRegisters = 32;
cudaError_t Softmax(const SoftmaxTask& task, int block, cudaStream_t stream);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_SOFTMAX_H_
