// The tiles of attention on CUDA cores that are instantiated, and what each needs.
//
// Each range of head dims has a large one, of which a multiprocessor of compute capability 9.0 or
// 10.0 holds one block (227 KiB of shared memory), and a small one that fits the 64 KiB of 7.5, and
// of which the others hold several. Eight warps of up to 255 registers are what the register file
// of a multiprocessor holds, and one block fills it, for where there is only one block for each.
// Where there are many blocks, as many warps in several are faster, since they do not wait for each
// other, and more warps still where a thread does with fewer registers: the medium tiles. They are
// for fp32 alone. What has 16 bits is converted as it is copied and takes registers for that, as
// fp32 does in code for 7.5, where that of head dim 32 spills some.
//
// 16 bits have tiles of head dims 64, 128 and 256 only: tensor cores are far faster, so more
// kernels are not worth their compile time.
//
//                            dim  warps  rows  keys   shared   why
//                                        of a
//                                        thread
//   large   256 x 64 keys     32  8 x 1    8    64    118 KiB  96 keys: registers are spilled
//           256 x 64          64  8 x 1    8    64    167 KiB  8 x 8 scores and 8 x 8 of O a thread
//           256 x 64          96  8 x 1    8    64    216 KiB  O in two parts of 64 and 32 dims
//           128 x 64         128  4 x 2    8    64    167 KiB  two warps share rows
//           128 x 48         192  4 x 2    8    48    201 KiB  64 keys: too much shared memory
//            64 x 64         256  2 x 4    8    64    218 KiB  128 rows leave room for 32 keys only
//   medium  128 x 64          32  4 x 1    8    64     68 KiB  three blocks of 168 registers
//           128 x 64          64  4 x 1    8    64    101 KiB  two blocks
//   small    64 x 64          32  4 x 1    4    64     43 KiB  half the rows a thread
//            64 x 32          64  4 x 1    4    32     44 KiB
//            64 x 32          96  4 x 1    4    32     61 KiB
//            32 x 32         128  2 x 2    4    32     57 KiB
//            32 x 16         192  2 x 2    4    16     57 KiB
//            16 x 16         256  1 x 2    4    16     58 KiB  what is left beside 16 keys of 256
#ifndef ATTENTION_DEVICE_CUDA_CORE_TABLE_H_
#define ATTENTION_DEVICE_CUDA_CORE_TABLE_H_

#include "attention/device/cuda_core_shape.h"

namespace attnlab::device {

// Medium is Large where there is none.
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
  int shared_bytes = 0;  // dynamic shared memory a block
  int blocks = 1;        // that a multiprocessor has registers for in any case
};

template <class Shape>
constexpr CudaCoreTile TileOf() {
  return {Shape::kDim,     Shape::kRows,        Shape::kKeys,
          Shape::kThreads, Shape::kSharedBytes, Shape::kBlocks};
}

// By head dim, the large one first and the small one last.
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
