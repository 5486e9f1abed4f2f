// The beginning of a tile of attention on CUDA cores: brings Q, and which keys each row sees, to
// shared memory.
#ifndef ATTENTION_DEVICE_CUDA_CORE_QUERIES_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_QUERIES_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/query_tile.h"
#include "attention/device/thread_index.cuh"

namespace attnlab::device {

// The keys that a row sees, in 32 bits: a sequence has fewer than 2^31 keys.
struct VisibleKeys {
  uint32_t begin, count;
  __device__ bool Has(uint32_t key) const { return key - begin < count; }
};

// The tiles of keys that the rows of a warp, or of the block, see. end_key is one past the last key
// that any of them sees. The other three are tile numbers.
template <class Shape>
struct WarpTiles {
  int32_t begin, full_begin, full_end, end_key;

  explicit __device__ WarpTiles(const KvTiles& tiles)
      : begin(static_cast<int32_t>(tiles.begin / Shape::kKeys)),
        full_begin(static_cast<int32_t>(tiles.full_begin / Shape::kKeys)),
        full_end(static_cast<int32_t>(tiles.full_end / Shape::kKeys)),
        end_key(static_cast<int32_t>(tiles.end)) {}

  // Has: some row sees some of the tile's keys. IsFull: all rows see all of them.
  __device__ bool Has(int32_t tile) const { return tile >= begin && tile * Shape::kKeys < end_key; }
  __device__ bool IsFull(int32_t tile) const { return tile >= full_begin && tile < full_end; }
  // One past the last tile. With 2^31 - 1 keys the sum needs 32 bits.
  __device__ int32_t End() const {
    return static_cast<int32_t>((static_cast<uint32_t>(end_key) + Shape::kKeys - 1) / Shape::kKeys);
  }
  // The tile's keys before end_key, for a tile that Has(). No row sees the keys after them.
  __device__ int KeysOf(int32_t tile) const {
    return min(end_key - tile * Shape::kKeys, Shape::kKeys);
  }
};

// Parts of shared memory. TilesOfWarps: one per row of warps, then the block's. Visible: one per
// row.
template <class Shape>
__device__ WarpTiles<Shape>* TilesOfWarps(float* shared) {
  return reinterpret_cast<WarpTiles<Shape>*>(shared + Shape::kTiles);
}
template <class Shape>
__device__ VisibleKeys* Visible(float* shared) {
  return reinterpret_cast<VisibleKeys*>(shared + Shape::kVisible);
}

// Where K and V of the sequence and head begin.
template <class Shape, typename T>
__device__ const T** Pointers(float* shared) {
  return reinterpret_cast<const T**>(shared + Shape::kPointers);
}

constexpr float kLog2e = 1.44269504088896341f;

// The factor for Q Kᵀ: it turns scores into base 2, or into the argument of tanh.
__device__ inline float QueryFactor(const Arguments& a) {
  return a.softcap == 0 ? a.scale * kLog2e : a.scale_by_softcap;
}

// Copies the block's queries, times QueryFactor() and transposed, to shared memory:
//
//   QueryCopy<Shape, T> copy(arguments, tile);   // begins to load to registers
//   …                                            // other work that takes a while
//   copy.Finish(arguments, tile, shared);        // the caller puts a barrier after it
//
// Rows and dims that do not exist become zero. This code runs once per query tile, so its
// instructions are not in the instruction cache, and each costs several times what one of a loop
// costs. Less code is faster here.
template <class Shape, typename T>
class QueryCopy {
 public:
  // All loads are in flight together. One after the other, they took as long as a tile of keys.
  __device__ QueryCopy(const Arguments& a, const QueryTile& tile) {
    if (!a.q.whole_chunks) return;
    const Place at;
    const T* const q = static_cast<const T*>(a.q.data) + at.dim;
    const int64_t first = tile.begin + at.row;
    const int64_t offset = tile.Offset(a.q, first);
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      const int64_t row = first + n * kRowStep;
      if (row >= tile.end) break;
      const T* const from =
          q + (tile.pack == 1 ? offset + n * kRowStep * a.q.token_stride : tile.Offset(a.q, row));
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (at.dim + c * kDimStep < a.d) {
          chunks_[n][c] = *reinterpret_cast<const uint4*>(from + c * kDimStep);
        }
      }
    }
  }

  __device__ void Finish(const Arguments& a, const QueryTile& tile, float* shared) const {
    const float factor = QueryFactor(a);
    if (!a.q.whole_chunks) {
      CopyElements(a, tile, factor, shared + Shape::kQ);
      return;
    }
    const Place at;
    float* const q = shared + Shape::kQ + at.dim * Shape::kQStride + at.row;
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const T* const elements = reinterpret_cast<const T*>(&chunks_[n][c]);
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          q[(c * kDimStep + i) * Shape::kQStride + n * kRowStep] = ToFloat(elements[i]) * factor;
        }
      }
    }
  }

 private:
  // A warp takes 4 chunks of 8 rows at a time, which are whole sectors of global memory. With
  // 16-bit elements, four stores go to the same bank, but only once per block.
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  static constexpr int kDimStep = 4 * kElements, kRowStep = Shape::kThreads / 4;
  static constexpr int kRows = Shape::kRows / kRowStep, kChunks = Shape::kDim / kDimStep;
  static_assert(Shape::kRows % kRowStep == 0 && Shape::kDim % kDimStep == 0);

  // The thread's first row and dim.
  struct Place {
    __device__ Place() : row(ThreadIndex() / 4), dim(ThreadIndex() % 4 * kElements) {}
    int row, dim;
  };

  static __device__ void CopyElements(const Arguments& a, const QueryTile& tile, float factor,
                                      float* q) {
#pragma unroll 4
    for (int i = ThreadIndex(); i < Shape::kRows * Shape::kDim; i += Shape::kThreads) {
      const int row = i / Shape::kDim, dim = i % Shape::kDim;
      float element = 0;
      if (tile.begin + row < tile.end && dim < a.d) {
        const T* const from = static_cast<const T*>(a.q.data);
        element = ToFloat(from[tile.Offset(a.q, tile.begin + row) + dim]);
      }
      q[dim * Shape::kQStride + row] = element * factor;
    }
  }

  uint4 chunks_[kRows][kChunks] = {};
};

// Writes to shared memory which tiles of keys the rows of each warp see, and those of the block.
// The caller puts a barrier after it, and after FindVisible().
template <class Shape>
__device__ void FindTiles(const Arguments& a, const QueryTile& tile, float* shared) {
  if (threadIdx.x > Shape::kRowWarps) return;
  QueryTile rows = tile;
  if (threadIdx.x < Shape::kRowWarps) {
    rows.begin += threadIdx.x * Shape::kWarpRows;
    if (rows.end > rows.begin + Shape::kWarpRows) rows.end = rows.begin + Shape::kWarpRows;
  }
  TilesOfWarps<Shape>(shared)[threadIdx.x] = WarpTiles<Shape>(rows.Tiles(a.mask, Shape::kKeys));
}

// Writes to shared memory which keys each row sees.
template <class Shape>
__device__ void FindVisible(const Arguments& a, const QueryTile& tile, float* shared) {
#pragma unroll 1
  for (int row = ThreadIndex(); row < Shape::kRows; row += Shape::kThreads) {
    const KvRange range = tile.Visible(a.mask, tile.begin + row);
    const int64_t count = range.end > range.begin ? range.end - range.begin : 0;
    Visible<Shape>(shared)[row] = {static_cast<uint32_t>(range.begin),
                                   static_cast<uint32_t>(count)};
  }
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_QUERIES_CUH_
