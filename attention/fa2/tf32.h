// FlashAttention-2 for fp32 on tensor cores with 3xTF32 (device/mma_tf32.cuh): which tiles there
// are, and the launch. From compute capability 8.0 on.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_FA2_TF32_H_
#define ATTENTION_FA2_TF32_H_

#include "attention/device/arguments.h"
#include "attention/fa2/grid.h"
#include "attention/fa2/tf32_shape.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// The tiles that are compiled, by head dim: that of Q, K, V and O, padded. Of each head dim the
// first that fits a block's shared memory is the default, and the last fits every GPU's of 8.0 and
// later, 99 KiB.
//
// A product costs three of tensor cores, 6.5 cycles each at the rate of mma.sync, and what is left
// for the rest are 5.5 instructions a product. Splitting a number takes three. Where each factor is
// split follows from that:
//
//   K, V   two numbers a lane and fragment, in each warp that reads it: 6 instructions for 3
//          products of a block of 16 rows. With 32 rows a warp they serve 6, one instruction each;
//          with 16 rows it is two. Both fit, so K and V lie in shared memory once, unsplit: big and
//          small halves would take twice the memory, a pass over each tile and a barrier.
//   Q      again for each tile of keys: 1 instruction a product with 32 keys, 1/2 with 64. Split
//          for good, a tile of 128 x 64 would take 32 KiB more, and leave room for one block a
//          multiprocessor only.
//   P      again for each 32 or 64 columns of O whose sums registers hold: 1 instruction a product.
//
// All told about 2.5 instructions a product beside it, softmax included.
//
// Rows a warp: 32 where O (head dim / 32 registers a row and lane), S and the sums of a tile's P V
// leave room, else 16. Two blocks of four warps a multiprocessor, or one of eight, keep tensor
// cores busy while others split.
template <int kHeadDim>
struct Tf32ShapeOf;
template <>
struct Tf32ShapeOf<32> {
  using Type = Tf32Shape<32, 4, 32, 64, 2>;
};
template <>
struct Tf32ShapeOf<64> {
  using Type = Tf32Shape<64, 4, 32, 32, 2>;
};
template <>
struct Tf32ShapeOf<96> {
  using Type = Tf32Shape<96, 4, 16, 32, 2>;
};
template <>
struct Tf32ShapeOf<128> {
  using Type = Tf32Shape<128, 4, 16, 32, 2>;
};
template <>
struct Tf32ShapeOf<192> {
  using Type = Tf32Shape<192, 4, 16, 32, 2, 1>;
};
template <>
struct Tf32ShapeOf<256> {
  using Type = Tf32Shape<256, 4, 16, 16, 2, 1>;
};

struct Tf32Call {
  device::Arguments arguments;  // Q, K, V and O of fp32
  Grid grid;
  cudaStream_t stream = nullptr;
};

// kHeadDim: 32, 64, 96, 128, 192 or 256, at least d and dv. Wants code for 8.0 or later
// (device/code_capability.h).
template <int kHeadDim>
cudaError_t LaunchTf32(const Tf32Call& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_H_
