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

// Tiles of keys, as numbers of tiles: those that some and that all of a warp's rows see.
struct TileNumbers {
  int32_t begin, full_begin, full_end, end;
  __device__ bool Has(int32_t tile) const { return tile >= begin && tile < end; }
  __device__ bool IsFull(int32_t tile) const { return tile >= full_begin && tile < full_end; }
};

template <class Shape>
__device__ TileNumbers NumbersOf(const KvTiles& tiles) {
  const auto number = [](int64_t key) { return static_cast<int32_t>(key / Shape::kKeys); };
  return {number(tiles.begin), number(tiles.full_begin), number(tiles.full_end),
          number(tiles.end + Shape::kKeys - 1)};
}

// In shared memory: one a row of warps and then the block's, and one a row.
template <class Shape>
__device__ TileNumbers* WarpTiles(float* shared) {
  return reinterpret_cast<TileNumbers*>(shared + Shape::kTiles);
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

// Q times that factor, transposed, and what rows see, to shared memory, by the whole block. Rows
// and dims that there are not become zero. A barrier is for the caller.
template <class Shape, typename T>
__device__ void LoadQueries(const Arguments& a, const QueryTile& tile, float* shared) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  constexpr int kWarps = Shape::kThreads / 32;
  // A warp takes 4 chunks of 8 rows at a time: whole sectors of memory. Of 16 bits four
  // go to the same bank, once a block.
  constexpr int kChunks = Shape::kDim / kChunk / 4;
  float* const q = shared + Shape::kQ;
  const float factor = QueryFactor(a);
  const T* const data = static_cast<const T*>(a.q.data);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
  for (int index = warp; index < Shape::kRows / 8 * kChunks; index += kWarps) {
    const int row = index / kChunks * 8 + lane / 4;
    const int dim = (index % kChunks * 4 + lane % 4) * kChunk;
    alignas(16) T elements[kChunk] = {};
    if (tile.begin + row < tile.end && dim < a.d) {
      const T* const from = data + tile.Offset(a.q, tile.begin + row) + dim;
      if (a.q.whole_chunks) {
        *reinterpret_cast<uint4*>(elements) = *reinterpret_cast<const uint4*>(from);
      } else {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          if (dim + i < a.d) elements[i] = from[i];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      q[(dim + i) * Shape::kQStride + row] = ToFloat(elements[i]) * factor;
    }
  }
  if (threadIdx.x <= Shape::kRowWarps) {
    QueryTile rows = tile;
    if (threadIdx.x < Shape::kRowWarps) {
      rows.begin += threadIdx.x * Shape::kWarpRows;
      if (rows.end > rows.begin + Shape::kWarpRows) rows.end = rows.begin + Shape::kWarpRows;
    }
    WarpTiles<Shape>(shared)[threadIdx.x] = NumbersOf<Shape>(rows.Tiles(a.mask, Shape::kKeys));
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
