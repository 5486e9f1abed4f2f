// FlashAttention-2 for fp32 on tensor cores with 3xTF32 (device/mma_tf32.cuh): which tiles there
// are, and the launch. From compute capability 8.0 on.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_FA2_TF32_H_
#define ATTENTION_FA2_TF32_H_

#include "attention/device/arguments.h"
#include "attention/device/tile_order.h"
#include "attention/fa2/tf32_shape.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// The tiles that are compiled, by head dim: that of Q, K, V and O, padded. All fit the 99 KiB of
// shared memory a block that every GPU of 8.0 and later has.
//
// A product costs three of tensor cores, some 6.5 cycles each at the rate of mma.sync, in which a
// scheduler issues one instruction a cycle: besides itself each leaves room for 5. To split a
// number takes two or three. Where each factor is split follows from that:
//
//   K, V   two numbers a lane and fragment, in each warp that reads it: 4 to 6 instructions for
//          three products of a block of 16 rows, 2 a product; 1 a product with 32 rows a warp,
//          whose blocks share the fragment. That fits, and so K and V lie in shared memory once,
//          unsplit: big and small halves would take twice the memory, a pass over each tile and a
//          barrier.
//   Q      again for each tile of keys: 1 instruction a product with 32 keys, 2 with 16. Split
//          once, it would take as much shared memory again, which from head dim 96 on is not there.
//   P      once; both parts stay in registers while columns of V go by. 64 keys of 32 rows a warp
//          would take 128 registers: 32 keys.
//
// All told 2 to 5 instructions a product, softmax included.
//
// Rows a warp: 32 up to head dim 64, where registers have room for O (head dim / 32 a row and
// lane), P in two parts and the sums of a tile's P V; else 16. Two blocks a multiprocessor, for
// while one splits the other multiplies. Compiled for 9.0 none of them spills.
template <int kHeadDim>
struct Tf32ShapeOf;
template <>
struct Tf32ShapeOf<32> {
  using Type = Tf32Shape<32, 4, 32, 32, 3>;  // 168 registers are enough: a third block
};
template <>
struct Tf32ShapeOf<64> {
  using Type = Tf32Shape<64, 4, 32, 32, 2>;
};
template <>
struct Tf32ShapeOf<96> {
  using Type = Tf32Shape<96, 4, 16, 32, 2>;  // 32 rows a warp spill
};
template <>
struct Tf32ShapeOf<128> {
  using Type = Tf32Shape<128, 4, 16, 32, 2>;
};
template <>
struct Tf32ShapeOf<192> {
  using Type = Tf32Shape<192, 4, 16, 16, 2>;  // 32 keys in one stage spill
};
template <>
struct Tf32ShapeOf<256> {
  using Type = Tf32Shape<256, 4, 16, 16, 2, 1>;  // of two stages, one block would fit
};

// The table as data.
struct Tf32TileRow {
  int head_dim = 0;  // the most that d and dv may be
  int rows = 0, keys = 0;
  int threads = 0, blocks = 0;  // a block, and blocks a multiprocessor has registers for
  int shared_bytes = 0;
};

template <class Shape>
constexpr Tf32TileRow Tf32RowOf() {
  static_assert(Shape::kSharedBytes < 99 << 10);
  return {Shape::kHeadDim, Shape::kRows,   Shape::kKeys,
          Shape::kThreads, Shape::kBlocks, Shape::kSharedBytes};
}

inline constexpr Tf32TileRow kTf32Tiles[] = {
    Tf32RowOf<Tf32ShapeOf<32>::Type>(),  Tf32RowOf<Tf32ShapeOf<64>::Type>(),
    Tf32RowOf<Tf32ShapeOf<96>::Type>(),  Tf32RowOf<Tf32ShapeOf<128>::Type>(),
    Tf32RowOf<Tf32ShapeOf<192>::Type>(), Tf32RowOf<Tf32ShapeOf<256>::Type>(),
};

struct Tf32Call {
  device::Arguments arguments;  // Q, K, V and O of fp32
  device::Grid grid;
  cudaStream_t stream = nullptr;
};

// kHeadDim: 32, 64, 96, 128, 192 or 256, at least d and dv. Wants code for 8.0 or later
// (device/code_capability.h).
template <int kHeadDim>
cudaError_t LaunchTf32(const Tf32Call& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_H_
