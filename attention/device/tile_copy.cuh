// Copies rows of a tensor to a tile in shared memory, with all threads of a block or of one warp.
// The copy is asynchronous if the tensor's alignment allows it.
//
// The tile has kRows rows of kDim elements of T, in chunks of 16 bytes whose places are given by
// Swizzle. Rows from `rows` on and columns from the tensor's head dim on become zeros, because NaN
// there would spoil the products.
#ifndef ATTENTION_DEVICE_TILE_COPY_CUH_
#define ATTENTION_DEVICE_TILE_COPY_CUH_

#include <cstdint>

#include "attention/device/cp_async.cuh"
#include "attention/device/swizzle.h"
#include "attention/device/thread_index.cuh"

namespace attnlab::device {

template <typename T, int kRows, int kDim, int kThreads>
struct TileCopy {
  static constexpr int kChunkElements = kChunkBytes / static_cast<int>(sizeof(T));
  static constexpr int kRowChunks = kDim / kChunkElements;
  static constexpr int kBytes = kRows * kDim * static_cast<int>(sizeof(T));
  using Place = Swizzle<kRowChunks>;

  // Threads side by side in a row. Each copies every kRowThreads-th chunk of every kRowStep-th row.
  // Both steps are whole multiples of the swizzle's period, so all of a thread's places are its
  // first one plus a constant. A single warp has only four rows at a time if they are long; then
  // that is so for every second place.
  static constexpr int kRowThreads = Place::kGroup;
  static constexpr int kRowStep = kThreads / kRowThreads;
  static_assert(kDim % kChunkElements == 0 && kThreads % kRowThreads == 0);
  static_assert((kRowStep % 8 == 0 || kRowStep == 4) && kRows % kRowStep == 0);

  // This thread's number among the kThreads that copy: those of the block, or the lanes of a warp.
  static __device__ int Thread() { return kThreads == 32 ? ThreadIndex() % 32 : ThreadIndex(); }
  static __device__ int Row(int thread) { return thread / kRowThreads; }
  static __device__ int Chunk(int thread) { return thread % kRowThreads; }

  // Begins to copy row i from row_at(i), for i < rows.
  template <typename RowAt>
  static __device__ void Copy(char* tile, int rows, int dim, bool whole_chunks,
                              const RowAt& row_at) {
    if (!whole_chunks) return CopyElements(tile, rows, dim, row_at);
    const int thread = Thread();
    const Places to(tile, thread);
#pragma unroll
    for (int i = 0; i < kRows / kRowStep; ++i) {
      const int row = Row(thread) + i * kRowStep;
      const T* const from = row_at(row < rows ? row : 0);
#pragma unroll
      for (int j = 0; j < kRowChunks / kRowThreads; ++j) {
        const int column = (Chunk(thread) + j * kRowThreads) * kChunkElements;
        const bool valid = row < rows && column < dim;
        CopyAsync<16>(to.At(i, j), valid ? from + column : from, valid);
      }
    }
  }

  // The same for inner loops: all rows exist, `stride` elements apart, and their kDim columns are
  // whole chunks. `from` is Offset() elements after the first row. `thread` is Thread(), which
  // the caller may have read before it is needed.
  static __device__ void CopyWhole(char* tile, const T* from, int64_t stride, int thread) {
    const Places to(tile, thread);
#pragma unroll
    for (int i = 0; i < kRows / kRowStep; ++i) {
#pragma unroll
      for (int j = 0; j < kRowChunks / kRowThreads; ++j) {
        CopyAsync<16>(to.At(i, j), from + i * kRowStep * stride + j * kRowThreads * kChunkElements);
      }
    }
  }
  // Elements from the first row's beginning to the first chunk that this thread copies.
  static __device__ int64_t Offset(int64_t stride) {
    const int thread = Thread();
    return Row(thread) * stride + Chunk(thread) * kChunkElements;
  }

 private:
  // Where a thread's chunks go: those of its even rows, and of its odd rows if they differ.
  class Places {
   public:
    __device__ Places(char* tile, int thread)
        : even_(tile + Place::At(Row(thread), Chunk(thread)) * kChunkBytes) {
      if constexpr (kRowStep == 4) {
        const int place = Place::At(Row(thread) + kRowStep, Chunk(thread)) - kRowStep * kRowChunks;
        odd_ = tile + place * kChunkBytes;
      }
    }
    // The j-th chunk of the i-th row.
    __device__ char* At(int i, int j) const {
      const int step = (i * kRowStep * kRowChunks + j * kRowThreads) * kChunkBytes;
      return (kRowStep == 4 && i % 2 != 0 ? odd_ : even_) + step;
    }

   private:
    char* even_;
    char* odd_;
  };

  // For rows in any alignment. This path is rare and long, so it is unrolled for a few loads only.
  template <typename RowAt>
  static __device__ void CopyElements(char* tile, int rows, int dim, const RowAt& row_at) {
    static_assert(kRows * kRowChunks % kThreads == 0);
    const int thread = Thread();
#pragma unroll 4
    for (int n = 0; n < kRows * kRowChunks / kThreads; ++n) {
      const int i = thread + n * kThreads;
      const int row = i / kRowChunks, chunk = i % kRowChunks, column = chunk * kChunkElements;
      const int count = row < rows ? dim - column : 0;
      const T* const from = row_at(row < rows ? row : 0);
      T values[kChunkElements];
#pragma unroll
      for (int x = 0; x < kChunkElements; ++x) values[x] = x < count ? from[column + x] : T(0.0f);
      *reinterpret_cast<uint4*>(tile + Place::At(row, chunk) * kChunkBytes) =
          *reinterpret_cast<const uint4*>(values);
    }
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_TILE_COPY_CUH_
