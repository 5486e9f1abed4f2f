// Copies of tiles of K and V to shared memory, as fp32, that go on while the block computes.
//
//   FloatTileCopy<float, 64, 64, 68, 256, 5> copy;
//   copy.Begin(to, k, from, count, d);   // nobody reads `to` from here on
//   …                                    // math on something else
//   copy.Finish(to, k, from, count, d);  // this thread's part is there
//   __syncthreads();                     // all is
//
// What needs no conversion is copied asynchronously from compute capability 8.0 on. Otherwise
// Begin() loads to registers, which Finish() stores, if these are no more than kMostStaged times 16
// bytes a thread; above that Finish() does it all. Rows that are not of whole 16 bytes at multiples
// of 16 bytes are copied element by element by Finish(), too.
#ifndef ATTENTION_DEVICE_FLOAT_TILE_COPY_CUH_
#define ATTENTION_DEVICE_FLOAT_TILE_COPY_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/cp_async.cuh"
#include "attention/device/cuda_core_threads.cuh"

namespace attnlab::device {

// 16 bytes of T as fp32, to shared memory aligned to 16 bytes.
__device__ inline void StoreAsFloats(float* to, uint4 chunk, const float*) {
  *reinterpret_cast<uint4*>(to) = chunk;
}
template <typename T>
__device__ void StoreAsFloats(float* to, uint4 chunk, const T*) {
  static_assert(sizeof(T) == 2);
  const T* const elements = reinterpret_cast<const T*>(&chunk);
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    *reinterpret_cast<float4*>(to + i) =
        make_float4(ToFloat(elements[i]), ToFloat(elements[i + 1]), ToFloat(elements[i + 2]),
                    ToFloat(elements[i + 3]));
  }
}

// Tiles of kRows rows of kColumns columns, kStride floats from row to row in shared memory, by
// kThreads threads.
template <typename T, int kRows, int kColumns, int kStride, int kThreads, int kMostStaged>
class FloatTileCopy {
 public:
  // Row 0 of the tile begins at `from`, the next ones `rows.token_stride` elements apart, and there
  // are `count` of them, of `columns` elements. What the tile has beyond them becomes zero.
  __device__ void Begin(float* to, const Rows& rows, const T* from, int count, int columns) {
    if (!rows.whole_chunks) return;
    const int thread = ThreadIndex();
    if constexpr (kAsync) {
#pragma unroll
      for (int i = 0; i < kChunksOfAThread; ++i) {
        const Place at(thread, i);
        if (!at.Exists()) break;
        const bool valid = at.row < count && at.column < columns;
        CopyAsync16(to + at.row * kStride + at.column,
                    valid ? from + at.row * rows.token_stride + at.column : from, valid);
      }
      CopyAsyncCommit();
    } else if constexpr (kStaged) {
#pragma unroll
      for (int i = 0; i < kChunksOfAThread; ++i) {
        staged_[i] = Load(Place(thread, i), rows, from, count, columns);
      }
    }
  }

  // Of what Begin() was called with.
  __device__ void Finish(float* to, const Rows& rows, const T* from, int count, int columns) {
    if (!rows.whole_chunks) {
      CopyElements(to, rows, from, count, columns);
    } else if constexpr (kAsync) {
      CopyAsyncWait<0>();
    } else {
      const int thread = ThreadIndex();
#pragma unroll(kStaged ? kChunksOfAThread : 4)
      for (int i = 0; i < kChunksOfAThread; ++i) {
        const Place at(thread, i);
        if (!at.Exists()) break;
        if constexpr (!kStaged) staged_[0] = Load(at, rows, from, count, columns);
        StoreAsFloats(to + at.row * kStride + at.column, staged_[kStaged ? i : 0],
                      static_cast<const T*>(nullptr));
      }
    }
  }

 private:
#if __CUDA_ARCH__ >= 800
  static constexpr bool kAsync = sizeof(T) == sizeof(float);
#else
  static constexpr bool kAsync = false;
#endif
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));  // elements of 16 bytes
  static constexpr int kRowChunks = kColumns / kChunk;
  static constexpr int kChunks = kRows * kRowChunks;
  static constexpr int kChunksOfAThread = (kChunks + kThreads - 1) / kThreads;
  static constexpr bool kStaged = !kAsync && kChunksOfAThread <= kMostStaged;

  // Of the thread's chunk i.
  struct Place {
    __device__ Place(int thread, int i)
        : index(i * kThreads + thread),
          row(index / kRowChunks),
          column(index % kRowChunks * kChunk) {}
    __device__ bool Exists() const { return kChunks % kThreads == 0 || index < kChunks; }
    int index, row, column;
  };

  __device__ static uint4 Load(const Place& at, const Rows& rows, const T* from, int count,
                               int columns) {
    if (!at.Exists() || at.row >= count || at.column >= columns) return {0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(from + at.row * rows.token_stride + at.column);
  }

  __device__ static void CopyElements(float* to, const Rows& rows, const T* from, int count,
                                      int columns) {
#pragma unroll 1
    for (int index = static_cast<int>(threadIdx.x); index < kRows * kColumns; index += kThreads) {
      const int row = index / kColumns, column = index % kColumns;
      const bool valid = row < count && column < columns;
      to[row * kStride + column] = valid ? ToFloat(from[row * rows.token_stride + column]) : 0;
    }
  }

  uint4 staged_[kStaged ? kChunksOfAThread : 1];
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_FLOAT_TILE_COPY_CUH_
