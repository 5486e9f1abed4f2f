// Steps 3 and 4: from the scores Q Kᵀ to the probabilities.
//
// The scores are fp32 matrices with one row per query: row i of (sequence, head) is at
// scores[((sequence * heads + head) * sq + i) * stride]. A pass works on some of the (sequence, KV
// head) pairs, so that not all scores need be in memory at once.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_BASELINE_SOFTMAX_H_
#define ATTENTION_BASELINE_SOFTMAX_H_

#include <cstdint>

#include "attention/core/mask.h"
#include "attention/device/element.h"
#include "attention/device/sequences.h"
#include "cuda_runtime.h"

namespace attnlab::baseline {

// Which rows a pass works on.
struct ScoreRows {
  int64_t first = 0;  // first (sequence, query head) pair: sequence * hq + head
  int64_t count = 0;  // number of pairs
  int64_t hq = 1;
  int64_t sq = 0, skv = 0;
  Mask mask;
  device::Sequences q, kv;
};

// What is done to a score before the softmax: s = scale * s; then, with a softcap, s = softcap *
// tanh(s / softcap).
struct ScoreTransform {
  float scale = 1;
  float softcap = 0;  // 0: none
};

// Step 3, in place. Scores that the mask hides become minus infinity, and so do rows that no
// sequence uses.
cudaError_t ScaleAndMask(const ScoreRows& rows, const ScoreTransform& transform, float* scores,
                         int64_t stride, int block, cudaStream_t stream);

struct SoftmaxTask {
  ScoreRows rows;
  const float* scores = nullptr;
  int64_t score_stride = 0;  // elements from row to row
  // The probabilities, rounded to `element`. They may replace the scores if `element` is fp32. They
  // are zero where the score is minus infinity.
  void* probabilities = nullptr;
  device::Element element = device::Element::kFloat32;
  int64_t probability_stride = 0;
  // fp32, natural log; null: not wanted. Rows that no sequence uses are not written.
  float* lse = nullptr;
  int64_t lse_batch_stride = 0, lse_row_stride = 0, lse_head_stride = 0;
  // Do step 3 as part of step 4, which saves one pass over the scores.
  bool fused = false;
  ScoreTransform transform;
};

// Step 4: one block per row. A row of up to kRowInRegisters * block elements is read once, a longer
// one twice. Strides must be multiples of 4 elements, and addresses of 16 bytes.
constexpr int kRowInRegisters = 32;
cudaError_t Softmax(const SoftmaxTask& task, int block, cudaStream_t stream);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_SOFTMAX_H_
