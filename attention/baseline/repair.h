// After step 5: NaN and infinity of V.
//
// A matrix product multiplies V by every probability, those of hidden keys too, which are 0; and 0
// times NaN is NaN, so a NaN that a row does not see would reach it. Where a mask hides keys, the
// product therefore gets a V in which such elements are 0 (PermuteTask::nonfinite), and what they
// do to the rows that see them is added here. Where V is finite this reads one flag a head.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_BASELINE_REPAIR_H_
#define ATTENTION_BASELINE_REPAIR_H_

#include <cstdint>

#include "attention/baseline/matrices.h"
#include "attention/baseline/permute.h"
#include "attention/baseline/softmax.h"
#include "attention/device/element.h"
#include "cuda_runtime.h"

namespace attnlab::baseline {

struct RepairTask {
  ScoreRows rows;
  int64_t group = 1;                                    // query heads a KV head
  int64_t dv = 0;                                       // columns of O and V
  device::Element element = device::Element::kFloat32;  // of O and P
  Matrices o, p;                                        // of the pass
  Rows v;                                               // the tensor
  const int32_t* nonfinite = nullptr;                   // one a KV head of the pass
  bool some_see_nothing = false;                        // whether rows without a key are possible
};

// A warp a row. V has the type of O and P, or is bf16 where they are fp32.
cudaError_t Repair(const RepairTask& task, int block, cudaStream_t stream);

}  // namespace attnlab::baseline

#endif  // ATTENTION_BASELINE_REPAIR_H_
