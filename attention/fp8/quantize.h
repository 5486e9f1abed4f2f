// Makes Q, K and V fp8, for a problem with dtype=fp8_e4m3.
//
//   AttentionProblem p = *AttentionProblem::Parse("hq=16,sq=4096,d=128,dtype=fp8_e4m3,scaleblock=128");
//   Fp8Tensors to = …;                       // memory of the caller
//   absl::Status s = Quantize(p, from, to, {/*hadamard=*/true});
//   AttentionTensors t = to.Inputs(from);    // and o
//   s = ForwardOnce(p, t);
//
// An element becomes its quotient by a scale, rounded to nearest, ties to even. The scale is the largest
// size of all elements that share it, divided by the largest number of the dtype (448 of fp8_e4m3, 57344 of
// fp8_e5m2), but at least 2^-64. Which elements do is what the views of the scales say: a stride of 0 along
// an axis gives one scale to all along it. So the problem's scale_block gives scales of blocks of rows, and
// strides of 0 in all axes one scale per tensor.
//
// Rows that are turned or multiplied by a matrix are computed in fp16, times a power of two where they would
// not fit, and so are their quotients (quantize_rows.h). fp8 loses 30 times as much, or more.
#ifndef ATTENTION_FP8_QUANTIZE_H_
#define ATTENTION_FP8_QUANTIZE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "attention/core/problem.h"
#include "attention/core/rotary.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"

namespace attnlab::fp8 {

// Shapes as of AttentionTensors (tensors.h), Q, K and V in the problem's dtypes and their scales in fp32.
struct Fp8Tensors {
  TensorView q, k, v;
  TensorView q_scale, k_scale, v_scale;

  // The inputs of the problem: these, with the lengths of `from`.
  AttentionTensors Inputs(AttentionTensors from) const;
};

struct QuantizeOptions {
  // Whether Q and K are multiplied by a random orthogonal matrix first (hadamard.h). O stays what it
  // is, and what is lost by fp8 becomes less if some elements are much larger than others.
  bool hadamard = false;
  uint64_t seed = 0;  // of the matrix's signs
  // Turns Q and K before that. The last query of a sequence has the position of its last key.
  Rotary rotary;
};

// `from` has Q, K and V in fp32, fp16 or bf16, and the problem's lengths; its o is not used. Rows that
// no sequence uses are not written, nor are the scales of blocks without rows, unless other blocks share
// them (or, on a GPU, any blocks share scales). Infinity and NaN reach all that shares their scale.
// With a Hadamard matrix, so do elements near the largest of fp32 or bf16, whose products are infinite.
//
// On the CPU, with all its threads, and done on return. On a GPU, asynchronous on the stream
// (cudaStream_t): it allocates nothing, and can be captured in a graph. The results are the same, bit for
// bit. If each block has a scale of its own, each row is read once; if not, twice. Where products do not fit
// fp16, as in blocks of zeros, it is read again.
//
// InvalidArgument for a problem of another dtype, for tensors that ValidateInputs() or ValidateRotary()
// rejects, and for results of another shape than `from`, or that share memory with each other or with `from`.
// Unimplemented for pages; on a GPU for fp32, head dims other than 64, 96, 128, 192 and 256, rows that do not
// begin at multiples of 16 bytes, and rotary dims that are no multiple of 16; and for head dim 256 with blocks
// of 128 rows on a GPU of compute capability 7.5, which has too little shared memory.
absl::Status Quantize(const AttentionProblem& problem, const AttentionTensors& from,
                      const Fp8Tensors& to, const QuantizeOptions& options = {},
                      void* stream = nullptr);

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_QUANTIZE_H_
