// FlashAttention-2 on tensor cores (mma.sync): which tiles there are, as types and as data, and the
// launch.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_FA2_TENSOR_CORES_H_
#define ATTENTION_FA2_TENSOR_CORES_H_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/device/tile_order.h"
#include "attention/fa2/tensor_core_shape.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// The tiles that are compiled, by head dim: that of Q, K, V and O, padded. The large one is the
// default. The small one fits the 64 KiB of shared memory a block that 7.5 has, whose tensor cores
// do not know bf16: it is of fp16 alone. The medium one, where the large one does not, fits the
// 99 KiB of 8.6, 8.9 and 12.0.
//
// Large ones have 32 rows a warp, so that each fragment of K and V that is read from shared memory
// serves two products. Where O (head dim / 32 registers a row and lane) leaves no room for them,
// two warps share rows, or a warp has 16; then tiles have one stage, so that a multiprocessor
// of 9.0 has two blocks, of which one works while the other waits. Registers that are left keep Q.
template <int kHeadDim>
struct TensorCoreShapes;
// In TensorCoreShape<>: head dim, warps, rows a warp, keys, blocks, stages, fragments of Q that are
// kept, pairs. kPlain: whether the large tile has kernels of their own for calls without a softcap;
// the others decide it tile by tile, at no cost in registers.
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
  using Large = TensorCoreShape<128, 4, 32, 64, 2, 2>;  // every register there is
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
  int threads = 0, blocks = 0;  // a block, and blocks a multiprocessor has registers for
  int shared_bytes = 0;
};

template <TileSize kSize, class Shape>
constexpr TensorCoreTileRow RowOf() {
  return {Shape::kHeadDim, kSize,          Shape::kRows,       Shape::kKeys,
          Shape::kThreads, Shape::kBlocks, Shape::kSharedBytes};
}

// By head dim, the largest tile first.
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
// Keys of a row that tensor cores are given. They cut what they add to an accumulator instead of
// rounding it; of V of one sign that makes O smaller key by key, on an H200 by 2.4 roundings to the
// dtype at the most for so many keys, and in proportion for more (docs/fa2.md). The products of
// m16n8k8, which code for 7.5 has, are twice as many: half as many keys.
inline constexpr int64_t kMostFp16Keys = int64_t{1} << 17;
inline constexpr int64_t kMostBf16Keys = int64_t{1} << 20;

struct TensorCoreCall {
  device::Arguments arguments;
  device::Grid grid;
  device::Element element = device::Element::kBFloat16;  // not kFloat32; of kSmall kFloat16
  TileSize size = TileSize::kLarge;
  cudaStream_t stream = nullptr;
};

// kHeadDim: 32, 64, 96, 128, 192 or 256, at least d and dv. bf16 wants code for 8.0 or later
// (device/code_capability.h).
template <int kHeadDim>
cudaError_t LaunchTensorCores(const TensorCoreCall& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORES_H_
