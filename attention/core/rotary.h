// Rotary position embedding (Su et al., "RoFormer", 2021) of the first `dim` dims of a head of Q or K. The
// angles are the caller's, so that any way of scaling them works.
#ifndef ATTENTION_CORE_ROTARY_H_
#define ATTENTION_CORE_ROTARY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"

namespace attnlab {

struct Rotary {
  // fp32 [1, positions, 1, dim]: for a token's position in its sequence the cosines of dim / 2
  // angles, then their sines. `dim` is even, 2 to d. At least skv positions, and 1. Null: no rotation.
  ConstTensorView table;
  // A pair that is rotated: dims 2 i and 2 i + 1, or else i and i + dim / 2.
  bool interleaved = false;
};

// OK if there is no rotation, or for a table that fits the problem and lies on the device. InvalidArgument
// otherwise, with what is wrong.
absl::Status ValidateRotary(const AttentionProblem& problem, const Rotary& rotary, Device device);

}  // namespace attnlab

#endif  // ATTENTION_CORE_ROTARY_H_
