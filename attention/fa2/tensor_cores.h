// FlashAttention-2 on tensor cores (mma.sync): the tiles, as types and as data, and the launch.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_FA2_TENSOR_CORES_H_
#define ATTENTION_FA2_TENSOR_CORES_H_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/device/tile_order.h"
#include "attention/fa2/tensor_core_shape.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// The compiled tiles, by the padded head dim of Q, K, V and O. The large tile is the default. The
// small tile fits the 64 KiB of shared memory per block of 7.5. Tensor cores of 7.5 do not support
// bf16, so the small tile is fp16 only. If the large tile does not fit the 99 KiB of 8.6, 8.9 and
// 12.0, a medium tile does.
//
// Large tiles have 32 rows per warp, so that each fragment of K and V read from shared memory
// serves two products. O takes head dim / 32 registers per row and lane. If that leaves no room for
// 32 rows, two warps share rows or a warp has 16. Such tiles have one stage, so that a
// multiprocessor of 9.0 holds two blocks, and one works while the other waits. Spare registers keep
// Q.
template <int kHeadDim>
struct TensorCoreShapes;
// TensorCoreShape<> takes: head dim, warps, rows per warp, keys, blocks, stages, kept fragments of
// Q, pairs. kPlain: whether the large tile has separate kernels for calls without a softcap. The
// others check for a softcap in each tile, at no cost in registers.
template <>
struct TensorCoreShapes<32> {
  static constexpr bool kPlain = false;
  using Large = TensorCoreShape<32, 4, 32, 64, 3, 2, 2>;  // 168 registers are enough
  using Medium = Large;
  using Small = Large;
};
template <>
struct TensorCoreShapes<64> {
  static constexpr bool kPlain = true;
  using Large = TensorCoreShape<64, 4, 32, 64, 2, 2, 4>;  // a third block would not keep Q
  using Medium = Large;
  using Small = Large;
};
template <>
struct TensorCoreShapes<96> {
  static constexpr bool kPlain = false;
  using Large = TensorCoreShape<96, 4, 32, 64, 2, 2, 2>;
  using Medium = Large;
  using Small = TensorCoreShape<96, 4, 16, 64, 2, 2>;
};
template <>
struct TensorCoreShapes<128> {
  static constexpr bool kPlain = true;
  using Large = TensorCoreShape<128, 4, 32, 64, 2, 2>;  // takes every register
  using Medium = Large;
  using Small = TensorCoreShape<128, 4, 16, 64, 2, 1>;
};
template <>
struct TensorCoreShapes<192> {
  static constexpr bool kPlain = false;
  using Large = TensorCoreShape<192, 4, 16, 64, 2, 1, 12>;
  using Medium = Large;
  using Small = TensorCoreShape<192, 4, 16, 32, 2, 1>;
};
template <>
struct TensorCoreShapes<256> {
  static constexpr bool kPlain = true;
  using Large = TensorCoreShape<256, 4, 32, 64, 2, 1, 2, true>;
  using Medium = TensorCoreShape<256, 4, 16, 32, 2, 2>;
  using Small = TensorCoreShape<256, 2, 16, 32, 2, 1>;  // 64 rows of Q leave no room for K and V
};

enum class TileSize { kLarge, kMedium, kSmall };

struct TensorCoreTileRow {
  int head_dim = 0;  // the most that d and dv may be
  TileSize size = TileSize::kLarge;
  int rows = 0, keys = 0;
  int threads = 0, blocks = 0;  // per block; blocks that a multiprocessor has registers for
  int shared_bytes = 0;
};

template <TileSize kSize, class Shape>
constexpr TensorCoreTileRow RowOf() {
  return {Shape::kHeadDim, kSize,          Shape::kRows,       Shape::kKeys,
          Shape::kThreads, Shape::kBlocks, Shape::kSharedBytes};
}

// By head dim; within one, the largest tile first.
inline constexpr TensorCoreTileRow kTensorCoreTiles[] = {
    RowOf<TileSize::kLarge, TensorCoreShapes<32>::Large>(),
    RowOf<TileSize::kLarge, TensorCoreShapes<64>::Large>(),
    RowOf<TileSize::kLarge, TensorCoreShapes<96>::Large>(),
    RowOf<TileSize::kSmall, TensorCoreShapes<96>::Small>(),
    RowOf<TileSize::kLarge, TensorCoreShapes<128>::Large>(),
    RowOf<TileSize::kSmall, TensorCoreShapes<128>::Small>(),
    RowOf<TileSize::kLarge, TensorCoreShapes<192>::Large>(),
    RowOf<TileSize::kSmall, TensorCoreShapes<192>::Small>(),
    RowOf<TileSize::kLarge, TensorCoreShapes<256>::Large>(),
    RowOf<TileSize::kMedium, TensorCoreShapes<256>::Medium>(),
    RowOf<TileSize::kSmall, TensorCoreShapes<256>::Small>(),
};
inline constexpr int kMaxHeadDim = 256;

struct TensorCoreCall {
  device::Arguments arguments;
  device::Grid grid;
  device::Element element = device::Element::kBFloat16;  // not kFloat32; kFloat16 if size is kSmall
  TileSize size = TileSize::kLarge;
  cudaStream_t stream = nullptr;
};

// kHeadDim: 32, 64, 96, 128, 192 or 256, at least d and dv. bf16 needs code for 8.0 or later
// (attention/cuda/code_capability.h).
template <int kHeadDim>
cudaError_t LaunchTensorCores(const TensorCoreCall& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORES_H_
