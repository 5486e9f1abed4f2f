// After step 5: a matrix product multiplies V by every probability, those of hidden keys too, which
// are 0; and 0 times NaN or infinity is NaN. So a NaN that a row does not see would reach it. Rows
// of O that are not finite are computed again here from the keys that they see. Where V is finite
// this reads O once and does nothing.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_BASELINE_REPAIR_H_
#define ATTENTION_BASELINE_REPAIR_H_

#include <cstdint>

#include "attention/baseline/matrices.h"
#include "attention/baseline/softmax.h"
#include "attention/device/element.h"
#include "cuda_runtime.h"

namespace attnlab::baseline {

struct RepairTask {
  ScoreRows rows;
  int64_t group = 1;                                    // query heads a KV head
  int64_t dv = 0;                                       // columns of O and V
  device::Element element = device::Element::kFloat32;  // of all three
  Matrices o, p, v;  // of the pass: its first KV head is matrix 0
};

// A warp a row.
cudaError_t Repair(const RepairTask& task, int block, cudaStream_t stream);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_REPAIR_H_
