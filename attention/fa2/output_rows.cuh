// The last step of a query tile: a warp's rows of O, from the swizzled tile in shared memory to
// where they belong.
#ifndef ATTENTION_FA2_OUTPUT_ROWS_CUH_
#define ATTENTION_FA2_OUTPUT_ROWS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"

namespace attnlab::fa2 {

// kRows rows of kDim elements of T, by the 32 lanes of a warp.
template <typename T, int kDim, int kRows>
struct OutputRows {
  static constexpr int kChunk = device::kChunkBytes / static_cast<int>(sizeof(T));  // elements
  using Place = device::Swizzle<kDim / kChunk>;

  // Adds what is not finite in V, of which P V was computed without it, to those rows that see it:
  // however small their P, infinity stays infinity. `seen`: the keys [x, y) that each row sees. `v`
  // is the row of key `first_key`, which `keys` keys begin with.
  static __device__ void AddNonfinite(char* rows, const int2* seen, const device::Arguments& a,
                                      const T* v, int first_key, int keys) {
#pragma unroll 1
    for (int key = 0; key < keys; ++key) {
      const T* const row_of_v = v + int64_t{key} * a.v.token_stride;
#pragma unroll 1
      for (int column = Lane(); column < a.dv; column += 32) {
        const float x = device::ToFloat(row_of_v[column]);
        if (isfinite(x)) continue;
#pragma unroll 1
        for (int row = 0; row < kRows; ++row) {
          if (first_key + key < seen[row].x || first_key + key >= seen[row].y) continue;
          T& o = reinterpret_cast<T*>(rows + Place::At(row, column / kChunk) *
                                                 device::kChunkBytes)[column % kChunk];
          o = device::FromFloat<T>(device::ToFloat(o) + x);
        }
      }
    }
    __syncwarp();
  }

  // Stores those rows that the tile has, of which the first is its row `first_row`.
  static __device__ void Store(const char* rows, const device::Arguments& a,
                               const device::QueryTile& tile, int first_row) {
    constexpr int kRowLanes = Place::kGroup, kStep = 32 / kRowLanes;
    const int first = Lane() / kRowLanes, chunk = Lane() % kRowLanes;
    T* const o = static_cast<T*>(a.o.data);
    const int64_t begin = tile.begin + first_row, left = tile.end - begin;
    if (tile.pack == 1 && left >= kRows && a.o.whole_chunks && a.dv == kDim) {
      T* to = o + tile.Offset(a.o, begin + first) + chunk * kChunk;
#pragma unroll
      for (int i = 0; i < kRows / kStep; ++i) {
#pragma unroll
        for (int j = 0; j < kDim / kChunk / kRowLanes; ++j) {
          *reinterpret_cast<uint4*>(to + j * kRowLanes * kChunk) = *reinterpret_cast<const uint4*>(
              rows + Place::At(first + i * kStep, chunk + j * kRowLanes) * device::kChunkBytes);
        }
        to += kStep * a.o.token_stride;
      }
      return;
    }
#pragma unroll 1
    for (int row = first; row < kRows && row < left; row += kStep) {
      T* const to = o + tile.Offset(a.o, begin + row);
#pragma unroll 1
      for (int c = chunk; c * kChunk < a.dv; c += kRowLanes) {
        const char* const from = rows + Place::At(row, c) * device::kChunkBytes;
        if (a.o.whole_chunks) {
          *reinterpret_cast<uint4*>(to + c * kChunk) = *reinterpret_cast<const uint4*>(from);
        } else {
          for (int e = c * kChunk; e < (c + 1) * kChunk && e < a.dv; ++e) {
            to[e] = reinterpret_cast<const T*>(from)[e - c * kChunk];
          }
        }
      }
    }
  }

 private:
  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_OUTPUT_ROWS_CUH_
