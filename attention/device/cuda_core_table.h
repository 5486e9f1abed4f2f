// The compiled tiles of attention on CUDA cores, and what each needs.
//
// Each range of head dims has a large and a small tile. A multiprocessor of compute capability 9.0
// or 10.0 (227 KiB of shared memory) holds one block of the large tile. The small tile fits the 64
// KiB of 7.5; the others hold several of its blocks.
//
// The register file of a multiprocessor holds 8 warps of up to 255 registers per thread. The large
// tile has all 8 in one block, for launches with only one block per multiprocessor. With many
// blocks, the same 8 warps in several blocks are faster, because blocks do not wait for each other.
// If a thread needs fewer registers, more warps are faster still. Those are the medium tiles. They
// exist for fp32 only: 16-bit elements are converted while they are copied, which takes registers.
// So does copying fp32 in code for 7.5, where the medium tile of head dim 32 spills some.
//
// 16-bit types have tiles of head dims 64, 128 and 256 only. Tensor cores are far faster for them,
// so more kernels are not worth their compile time.
//
//                            dim  warps  rows  keys   shared   why
//                                        per
//                                        thread
//   large   256 x 64 keys     32  8 x 1    8    64    118 KiB  96 keys would spill registers
//           256 x 64          64  8 x 1    8    64    167 KiB  8 x 8 scores, 8 x 8 of O per thread
//           256 x 64          96  8 x 1    8    64    216 KiB  O in two parts of 64 and 32 dims
//           128 x 64         128  4 x 2    8    64    167 KiB  two warps share rows
//           128 x 48         192  4 x 2    8    48    201 KiB  64 keys take too much shared memory
//            64 x 64         256  2 x 4    8    64    218 KiB  128 rows leave room for 32 keys only
//   medium  128 x 64          32  4 x 1    8    64     68 KiB  three blocks at 168 registers
//           128 x 64          64  4 x 1    8    64    101 KiB  two blocks
//   small    64 x 64          32  4 x 1    4    64     43 KiB  half the rows per thread
//            64 x 32          64  4 x 1    4    32     44 KiB
//            64 x 32          96  4 x 1    4    32     61 KiB
//            32 x 32         128  2 x 2    4    32     57 KiB
//            32 x 16         192  2 x 2    4    16     57 KiB
//            16 x 16         256  1 x 2    4    16     58 KiB  all that fits beside 16 keys of 256
#ifndef ATTENTION_DEVICE_CUDA_CORE_TABLE_H_
#define ATTENTION_DEVICE_CUDA_CORE_TABLE_H_

#include "attention/device/cuda_core_shape.h"

namespace attnlab::device {

// Medium is Large if there is no medium tile.
template <int kDim>
struct CudaCoreShapes;
template <>
struct CudaCoreShapes<32> {
  using Large = CudaCoreShape<32, 8, 1, 8, 64>;
  using Medium = CudaCoreShape<32, 4, 1, 8, 64, 3>;
  using Small = CudaCoreShape<32, 4, 1, 4, 64>;
};
template <>
struct CudaCoreShapes<64> {
  using Large = CudaCoreShape<64, 8, 1, 8, 64>;
  using Medium = CudaCoreShape<64, 4, 1, 8, 64, 2>;
  using Small = CudaCoreShape<64, 4, 1, 4, 32>;
};
template <>
struct CudaCoreShapes<96> {
  using Large = CudaCoreShape<96, 8, 1, 8, 64>;
  using Medium = Large;
  using Small = CudaCoreShape<96, 4, 1, 4, 32>;
};
template <>
struct CudaCoreShapes<128> {
  using Large = CudaCoreShape<128, 4, 2, 8, 64>;
  using Medium = Large;
  using Small = CudaCoreShape<128, 2, 2, 4, 32>;
};
template <>
struct CudaCoreShapes<192> {
  using Large = CudaCoreShape<192, 4, 2, 8, 48>;
  using Medium = Large;
  using Small = CudaCoreShape<192, 2, 2, 4, 16>;
};
template <>
struct CudaCoreShapes<256> {
  using Large = CudaCoreShape<256, 2, 4, 8, 64>;
  using Medium = Large;
  using Small = CudaCoreShape<256, 1, 2, 4, 16>;
};

// A row of the table.
struct CudaCoreTile {
  int dim = 0;  // the most that d and dv may be
  int rows = 0, keys = 0;
  int threads = 0;
  int shared_bytes = 0;  // dynamic shared memory per block
  int blocks = 1;        // blocks per multiprocessor that there are always registers for
};

template <class Shape>
constexpr CudaCoreTile TileOf() {
  return {Shape::kDim,     Shape::kRows,        Shape::kKeys,
          Shape::kThreads, Shape::kSharedBytes, Shape::kBlocks};
}

// By head dim; within one, the large tile first and the small one last.
inline constexpr CudaCoreTile kCudaCoreTiles[] = {
    TileOf<CudaCoreShapes<32>::Large>(),  TileOf<CudaCoreShapes<32>::Medium>(),
    TileOf<CudaCoreShapes<32>::Small>(),  TileOf<CudaCoreShapes<64>::Large>(),
    TileOf<CudaCoreShapes<64>::Medium>(), TileOf<CudaCoreShapes<64>::Small>(),
    TileOf<CudaCoreShapes<96>::Large>(),  TileOf<CudaCoreShapes<96>::Small>(),
    TileOf<CudaCoreShapes<128>::Large>(), TileOf<CudaCoreShapes<128>::Small>(),
    TileOf<CudaCoreShapes<192>::Large>(), TileOf<CudaCoreShapes<192>::Small>(),
    TileOf<CudaCoreShapes<256>::Large>(), TileOf<CudaCoreShapes<256>::Small>(),
};
inline constexpr int kMaxCudaCoreDim = 256;

constexpr bool IsDimOf16Bits(int dim) { return dim == 64 || dim == 128 || dim == 256; }

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_TABLE_H_
