// The beginning of a tile of attention on CUDA cores: its queries, and which keys they see, to
// shared memory.
#ifndef ATTENTION_DEVICE_CUDA_CORE_QUERIES_CUH_
#define ATTENTION_DEVICE_CUDA_CORE_QUERIES_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/kv_tiles.h"
#include "attention/device/query_tile.h"

namespace attnlab::device {

// Which keys a row sees, as two 32-bit integers: a sequence has fewer than 2^31.
struct VisibleKeys {
  uint32_t begin, count;
  __device__ bool Has(uint32_t key) const { return key - begin < count; }
};

// The tiles of keys that the rows of a warp, or of the block, see. end_key is the key behind the
// last that one of them sees, the others are numbers of tiles.
template <class Shape>
struct WarpTiles {
  int32_t begin, full_begin, full_end, end_key;

  explicit __device__ WarpTiles(const KvTiles& tiles)
      : begin(static_cast<int32_t>(tiles.begin / Shape::kKeys)),
        full_begin(static_cast<int32_t>(tiles.full_begin / Shape::kKeys)),
        full_end(static_cast<int32_t>(tiles.full_end / Shape::kKeys)),
        end_key(static_cast<int32_t>(tiles.end)) {}

  // Some rows see some of its keys; all rows see all of them.
  __device__ bool Has(int32_t tile) const { return tile >= begin && tile * Shape::kKeys < end_key; }
  __device__ bool IsFull(int32_t tile) const { return tile >= full_begin && tile < full_end; }
  // Keys before end_key of a tile that it has: behind them no row sees any.
  __device__ int KeysOf(int32_t tile) const {
    return min(end_key - tile * Shape::kKeys, Shape::kKeys);
  }
};

// In shared memory: one a row of warps and then the block's, and one a row.
template <class Shape>
__device__ WarpTiles<Shape>* TilesOfWarps(float* shared) {
  return reinterpret_cast<WarpTiles<Shape>*>(shared + Shape::kTiles);
}
template <class Shape>
__device__ VisibleKeys* Visible(float* shared) {
  return reinterpret_cast<VisibleKeys*>(shared + Shape::kVisible);
}

// And where K and V of the sequence and head begin.
template <class Shape, typename T>
__device__ const T** Pointers(float* shared) {
  return reinterpret_cast<const T**>(shared + Shape::kPointers);
}

constexpr float kLog2e = 1.44269504088896341f;

// By what the product of Q and K is multiplied: into base 2, or into the argument of tanh.
__device__ inline float QueryFactor(const Arguments& a) {
  return a.softcap == 0 ? a.scale * kLog2e : a.scale_by_softcap;
}

// One row's chunk of 16 bytes of Q. Elements of dims that there are not are left alone.
template <typename T>
__device__ void LoadChunk(const Rows& rows, const T* row, int dim, int d, T* chunk) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  if (rows.whole_chunks) {
    if (dim < d) *reinterpret_cast<uint4*>(chunk) = *reinterpret_cast<const uint4*>(row + dim);
    return;
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (dim + i < d) chunk[i] = row[dim + i];
  }
}

// Q times that factor, transposed, and what rows see, to shared memory, by the whole block. Rows
// and dims that there are not become zero. A barrier is for the caller.
template <class Shape, typename T>
__device__ void LoadQueries(const Arguments& a, const QueryTile& tile, float* shared) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  constexpr int kWarps = Shape::kThreads / 32;
  // A warp takes 4 chunks of 8 rows at a time: whole sectors of memory. Of 16 bits four
  // go to the same bank, once a block.
  constexpr int kChunks = Shape::kDim / kElements / 4;  // of a thread's row
  // Up to eight loads and more are under way together, of so many rows: one after the other they
  // took as long as a tile of keys.
  constexpr int kWarpRows = Shape::kRows / 8 / kWarps;
  constexpr int kWanted = kChunks < 8 ? 8 / kChunks : 1;
  constexpr int kAtOnce = kWanted < kWarpRows ? kWanted : kWarpRows;
  static_assert(Shape::kRows % (8 * kWarps * kAtOnce) == 0);
  float* const q = shared + Shape::kQ;
  const float factor = QueryFactor(a);
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int first = threadIdx.x / 32; first < Shape::kRows / 8; first += kAtOnce * kWarps) {
    alignas(16) T elements[kAtOnce][kChunks][kElements] = {};
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t row = tile.begin + (first + n * kWarps) * 8 + lane / 4;
      if (row >= tile.end) continue;
      const T* const from = static_cast<const T*>(a.q.data) + tile.Offset(a.q, row);
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        LoadChunk(a.q, from, (c * 4 + lane % 4) * kElements, a.d, elements[n][c]);
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int row = (first + n * kWarps) * 8 + lane / 4;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          const int dim = (c * 4 + lane % 4) * kElements + i;
          q[dim * Shape::kQStride + row] = ToFloat(elements[n][c][i]) * factor;
        }
      }
    }
  }
  if (threadIdx.x <= Shape::kRowWarps) {
    QueryTile rows = tile;
    if (threadIdx.x < Shape::kRowWarps) {
      rows.begin += threadIdx.x * Shape::kWarpRows;
      if (rows.end > rows.begin + Shape::kWarpRows) rows.end = rows.begin + Shape::kWarpRows;
    }
    TilesOfWarps<Shape>(shared)[threadIdx.x] = WarpTiles<Shape>(rows.Tiles(a.mask, Shape::kKeys));
  }
  for (int row = threadIdx.x; row < Shape::kRows; row += Shape::kThreads) {
    const KvRange range = tile.Visible(a.mask, tile.begin + row);
    const int64_t count = range.end > range.begin ? range.end - range.begin : 0;
    Visible<Shape>(shared)[row] = {static_cast<uint32_t>(range.begin),
                                   static_cast<uint32_t>(count)};
  }
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CUDA_CORE_QUERIES_CUH_
