// The table of tensor_cores.h as data, for the host.
#ifndef ATTENTION_FA2_TENSOR_CORE_TABLE_H_
#define ATTENTION_FA2_TENSOR_CORE_TABLE_H_

#include <cstdint>

#include "attention/fa2/tensor_cores.h"

namespace attnlab::fa2 {

struct TensorCoreTileRow {
  int head_dim = 0;  // the most that d and dv may be
  TileSize size = TileSize::kLarge;
  int rows = 0, keys = 0;
  int threads = 0, blocks = 0;  // a block, and blocks a multiprocessor has registers for
  int shared_bytes = 0;
};

template <int kHeadDim, TileSize kSize, class Shape>
constexpr TensorCoreTileRow RowOf() {
  return {kHeadDim,        kSize,          Shape::kRows,       Shape::kKeys,
          Shape::kThreads, Shape::kBlocks, Shape::kSharedBytes};
}

// By head dim, the largest tile first. A row that is there twice under two sizes is one kernel.
inline constexpr TensorCoreTileRow kTensorCoreTiles[] = {
    RowOf<32, TileSize::kLarge, TensorCoreShapes<32>::Large>(),
    RowOf<32, TileSize::kSmall, TensorCoreShapes<32>::Small>(),
    RowOf<64, TileSize::kLarge, TensorCoreShapes<64>::Large>(),
    RowOf<64, TileSize::kSmall, TensorCoreShapes<64>::Small>(),
    RowOf<96, TileSize::kLarge, TensorCoreShapes<96>::Large>(),
    RowOf<96, TileSize::kSmall, TensorCoreShapes<96>::Small>(),
    RowOf<128, TileSize::kLarge, TensorCoreShapes<128>::Large>(),
    RowOf<128, TileSize::kSmall, TensorCoreShapes<128>::Small>(),
    RowOf<192, TileSize::kLarge, TensorCoreShapes<192>::Large>(),
    RowOf<192, TileSize::kSmall, TensorCoreShapes<192>::Small>(),
    RowOf<256, TileSize::kLarge, TensorCoreShapes<256>::Large>(),
    RowOf<256, TileSize::kMedium, TensorCoreShapes<256>::Medium>(),
    RowOf<256, TileSize::kSmall, TensorCoreShapes<256>::Small>(),
};
inline constexpr int kMaxHeadDim = 256;
// Keys of a row that tensor cores are given. They cut what they add to an accumulator instead of
// rounding it; of V of one sign that makes O smaller key by key, on an H200 by 2.4 roundings to the
// dtype at the most for so many keys, and in proportion for more (docs/fa2.md). The products of
// m16n8k8, which code for 7.5 has, are twice as many: half as many keys.
inline constexpr int64_t kMostFp16Keys = int64_t{1} << 17;
inline constexpr int64_t kMostBf16Keys = int64_t{1} << 20;

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORE_TABLE_H_
