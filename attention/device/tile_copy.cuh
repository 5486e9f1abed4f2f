// Rows of a tensor to a tile in shared memory, by all threads of a block, asynchronously where the
// tensor's alignment allows.
//
// The tile has kRows rows of kDim elements of T, in chunks of 16 bytes that lie as Swizzle says.
// Rows from `rows` on and columns from the tensor's head dim on are zeros: what is multiplied with
// them counts for nothing, as NaN would not.
#ifndef ATTENTION_DEVICE_TILE_COPY_CUH_
#define ATTENTION_DEVICE_TILE_COPY_CUH_

#include <cstdint>

#include "attention/device/cp_async.cuh"
#include "attention/device/swizzle.h"

namespace attnlab::device {

template <typename T, int kRows, int kDim, int kThreads>
struct TileCopy {
  static constexpr int kChunkElements = kChunkBytes / static_cast<int>(sizeof(T));
  static constexpr int kRowChunks = kDim / kChunkElements;
  static constexpr int kBytes = kRows * kDim * static_cast<int>(sizeof(T));
  using Place = Swizzle<kRowChunks>;

  // Threads side by side in a row; each has every kRowThreads-th chunk of every kRowStep-th row.
  // These are a whole number of groups and of shifts, so that the places of a thread's chunks are
  // its first and constants.
  static constexpr int kRowThreads = Place::kGroup;
  static constexpr int kRowStep = kThreads / kRowThreads;
  static_assert(kDim % kChunkElements == 0 && kThreads % kRowThreads == 0);
  static_assert(kRowStep % 8 == 0 && kRows % kRowStep == 0);

  static __device__ int Row() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  static __device__ int Chunk() { return static_cast<int>(threadIdx.x) % kRowThreads; }

  // Copies row i from row_at(i), for i < rows.
  template <typename RowAt>
  static __device__ void Copy(char* tile, int rows, int dim, bool whole_chunks,
                              const RowAt& row_at) {
    char* const to = tile + Place::At(Row(), Chunk()) * kChunkBytes;
#pragma unroll
    for (int i = 0; i < kRows / kRowStep; ++i) {
      const int row = Row() + i * kRowStep;
      const T* const from = row_at(row < rows ? row : 0);
#pragma unroll
      for (int j = 0; j < kRowChunks / kRowThreads; ++j) {
        const int chunk = Chunk() + j * kRowThreads;
        void* const there = to + (i * kRowStep * kRowChunks + j * kRowThreads) * kChunkBytes;
        if (whole_chunks) {
          const bool valid = row < rows && chunk * kChunkElements < dim;
          CopyAsync16(there, valid ? from + chunk * kChunkElements : from, valid);
        } else {
          CopyElements(there, from, row < rows ? dim - chunk * kChunkElements : 0,
                       chunk * kChunkElements);
        }
      }
    }
  }

  // The same for rows `stride` elements apart, all of which there are, and of kDim columns in whole
  // chunks: what inner loops copy. `from` is Offset() elements from the first row.
  static __device__ void CopyWhole(char* tile, const T* from, int64_t stride) {
    char* const to = tile + Place::At(Row(), Chunk()) * kChunkBytes;
#pragma unroll
    for (int i = 0; i < kRows / kRowStep; ++i) {
#pragma unroll
      for (int j = 0; j < kRowChunks / kRowThreads; ++j) {
        CopyAsync16(to + (i * kRowStep * kRowChunks + j * kRowThreads) * kChunkBytes,
                    from + j * kRowThreads * kChunkElements);
      }
      from += kRowStep * stride;
    }
  }
  // From the first row to what this thread copies first.
  static __device__ int64_t Offset(int64_t stride) {
    return Row() * stride + Chunk() * kChunkElements;
  }

 private:
  // A chunk of which the tensor has `count` elements, or all, or none, in any alignment.
  static __device__ void CopyElements(void* to, const T* row, int count, int column) {
    T values[kChunkElements];
#pragma unroll
    for (int i = 0; i < kChunkElements; ++i) values[i] = i < count ? row[column + i] : T(0.0f);
    *static_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(values);
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_TILE_COPY_CUH_
