// The last step of a query tile: copies a warp's rows of O from the swizzled tile in shared memory
// to global memory.
#ifndef ATTENTION_DEVICE_OUTPUT_ROWS_CUH_
#define ATTENTION_DEVICE_OUTPUT_ROWS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/query_tile.h"
#include "attention/device/swizzle.h"

namespace attnlab::device {

// kRows rows of kDim elements of T, copied by the 32 lanes of a warp.
template <typename T, int kDim, int kRows>
struct OutputRows {
  static constexpr int kChunk = kChunkBytes / static_cast<int>(sizeof(T));  // elements
  using Place = Swizzle<kDim / kChunk>;

  // Stores those of the rows that exist. `rows` begins with row `first_row` of the tile.
  static __device__ void Store(const char* rows, const Arguments& a, const QueryTile& tile,
                               int first_row) {
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
              rows + Place::At(first + i * kStep, chunk + j * kRowLanes) * kChunkBytes);
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
        const char* const from = rows + Place::At(row, c) * kChunkBytes;
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

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_OUTPUT_ROWS_CUH_
