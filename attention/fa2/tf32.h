// FlashAttention-2 for fp32 on tensor cores with 3xTF32 (device/mma_tf32.cuh): the tiles and the
// launch. From compute capability 8.0 on.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_FA2_TF32_H_
#define ATTENTION_FA2_TF32_H_

#include "attention/device/arguments.h"
#include "attention/device/tile_order.h"
#include "attention/fa2/tf32_shape.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// The compiled tiles, by the padded head dim of Q, K, V and O. All fit the 99 KiB of shared memory
// per block that every GPU of 8.0 and later has.
//
// An fp32 product takes three tensor-core products of about 6.5 cycles each, at the rate of
// mma.sync. A scheduler issues one instruction per cycle, so each product leaves room for 5 others.
// Splitting a number takes two or three instructions. That decides where each factor is split:
//
//   K, V   In each warp that reads them, two numbers per lane and fragment: 4 to 6 instructions for
//          the three products of a block of 16 rows, or 2 per product. With 32 rows per warp, two
//          blocks share the fragment: 1 per product. That fits, so K and V lie in shared memory
//          once, unsplit. Split, they would take twice the memory, a pass over each tile and a
//          barrier.
//   Q      Again for each tile of keys: 1 instruction per product with 32 keys, 2 with 16. Split
//          once, Q would take twice the shared memory, which is not there from head dim 96 on.
//   P      Once. Both parts stay in registers while the columns of V go by. 64 keys and 32 rows per
//          warp would take 128 registers, so tiles have 32 keys.
//
// In all, 2 to 5 instructions per product, softmax included.
//
// A warp has 32 rows up to head dim 64. There, registers have room for O (head dim / 32 per row and
// lane), P in two parts and the sums of a tile's P V. Above, a warp has 16 rows. A multiprocessor
// holds two blocks, so that one multiplies while the other splits. Compiled for 9.0, none of them
// spills.
template <int kHeadDim>
struct Tf32ShapeOf;
template <>
struct Tf32ShapeOf<32> {
  using Type = Tf32Shape<32, 4, 32, 32, 3>;  // 168 registers are enough for a third block
};
template <>
struct Tf32ShapeOf<64> {
  using Type = Tf32Shape<64, 4, 32, 32, 2>;
};
template <>
struct Tf32ShapeOf<96> {
  using Type = Tf32Shape<96, 4, 16, 32, 2>;  // 32 rows per warp would spill
};
template <>
struct Tf32ShapeOf<128> {
  using Type = Tf32Shape<128, 4, 16, 32, 2>;
};
template <>
struct Tf32ShapeOf<192> {
  using Type = Tf32Shape<192, 4, 16, 16, 2>;  // 32 keys in one stage would spill
};
template <>
struct Tf32ShapeOf<256> {
  using Type = Tf32Shape<256, 4, 16, 16, 2, 1>;  // with two stages, only one block would fit
};

// The table as data.
struct Tf32TileRow {
  int head_dim = 0;  // the most that d and dv may be
  int rows = 0, keys = 0;
  int threads = 0, blocks = 0;  // per block; blocks that a multiprocessor has registers for
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

// kHeadDim: 32, 64, 96, 128, 192 or 256, at least d and dv. Needs code for 8.0 or later
// (attention/cuda/code_capability.h).
template <int kHeadDim>
cudaError_t LaunchTf32(const Tf32Call& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_H_
