// Copies tiles of K and V to shared memory as fp32 while the block computes.
//
//   FloatTileCopy<float, 64, 64, RowMajor<64>, 256, 5> copy;
//   copy.Begin(to, k, from, count, d);   // nobody reads `to` from here on
//   …                                    // compute something else
//   copy.Finish(to, k, from, count, d);  // this thread's part has arrived
//   __syncthreads();                     // all parts have
//
// A copy of more instructions than the multiprocessor takes at once can begin in parts:
//
//   auto rest = copy.BeginPart(to, k, from, count, d);
//   …; rest.Next(); …; rest.Next(); …    // between other work
//   rest.Finish();                       // begins whatever is left
//   copy.Finish(to, k, from, count, d);
//
// From compute capability 8.0 on, data that needs no conversion is copied asynchronously. Otherwise
// Begin() loads to registers and Finish() stores them, if that takes at most kMostStaged times 16
// bytes per thread. Above that, Finish() does everything. Finish() also copies element by element
// if rows do not begin at multiples of 16 bytes or are not whole multiples of 16 bytes.
#ifndef ATTENTION_DEVICE_FLOAT_TILE_COPY_CUH_
#define ATTENTION_DEVICE_FLOAT_TILE_COPY_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/copy_places.h"
#include "attention/device/cp_async.cuh"
#include "attention/device/thread_index.cuh"

namespace attnlab::device {

// The layout of a tile in shared memory: floats from row to row and from column to column.
template <int kStride>
struct RowMajor {
  static constexpr int kRow = kStride, kColumn = 1;
};
template <int kStride>
struct Transposed {
  static constexpr int kRow = 1, kColumn = kStride;
};

// Copies tiles of kRows x kColumns with kThreads threads: those of the block, or the lanes of a warp.
// Layout says where elements go.
template <typename T, int kRows, int kColumns, class Layout, int kThreads, int kMostStaged>
class FloatTileCopy {
  static constexpr bool kTransposes = Layout::kColumn != 1;

 public:
#if __CUDA_ARCH__ >= 800
  static constexpr bool kAsync = sizeof(T) == sizeof(float);
#else
  static constexpr bool kAsync = false;
#endif

  // Row 0 of the tile begins at `from`, and rows are `rows.token_stride` elements apart. There are
  // `count` rows of `columns` elements. The rest of the tile becomes zero.
  __device__ void Begin(float* to, const Rows& rows, const T* from, int count, int columns) {
    if (!rows.whole_chunks) return;
    if constexpr (kAsync) {
      if (count >= kRows && columns == kColumns) {
        CopyWhole(to, rows, from);
      } else {
        CopyPart(to, rows, from, count, columns);
      }
      CopyAsyncCommit();
    } else if constexpr (kStaged) {
      ForEachPlace([&](int i, int row, int column) {
        staged_[i] = Load(row, column, rows, from, count, columns);
      });
    }
  }

  // The part of a copy that has not begun yet. Next() begins some more of it, if any is left.
  class Rest {
   public:
    __device__ void Next() {
      if (left_ == 0) return;
      CopyRow(to_, from_);
      to_ += Places::kDownStep * Layout::kRow;
      from_ += step_;
      if (--left_ == 0) CopyAsyncCommit();
    }
    __device__ void Finish() {
#pragma unroll 1
      while (left_ != 0) Next();
    }

   private:
    friend class FloatTileCopy;
    float* to_ = nullptr;
    const T* from_ = nullptr;
    int64_t step_ = 0;
    int left_ = 0;
  };

  // As Begin(), but only a first part. The rest is a whole tile that is copied asynchronously, or
  // nothing. The caller must begin all of it before Finish().
  __device__ Rest BeginPart(float* to, const Rows& rows, const T* from, int count, int columns) {
    Rest rest;
    if constexpr (kAsync) {
      if (rows.whole_chunks && count >= kRows && columns == kColumns) {
        static_assert(kRows % Places::kDownStep == 0);
        const Places places = Places::Of(Thread());
        rest.to_ = At(to, places.row, places.unit * kUnit);
        rest.from_ = from + places.row * rows.token_stride + places.unit * kUnit;
        rest.step_ = Places::kDownStep * rows.token_stride;
        rest.left_ = Places::kDown;
        return rest;
      }
    }
    Begin(to, rows, from, count, columns);
    return rest;
  }

  // Takes the same arguments as Begin().
  __device__ void Finish(float* to, const Rows& rows, const T* from, int count, int columns) {
    if (!rows.whole_chunks) {
      CopyElements(to, rows, from, count, columns);
    } else if constexpr (kAsync) {
      CopyAsyncWait<0>();
    } else {
      ForEachPlace([&](int i, int row, int column) {
        if constexpr (!kStaged) staged_[0] = Load(row, column, rows, from, count, columns);
        Store(At(to, row, column), staged_[kStaged ? i : 0]);
      });
    }
  }

 private:
  // Elements that are copied together. Transposed, each goes to a different place, which one
  // asynchronous copy cannot do. Lanes are then arranged so that they read whole sectors and at
  // most two of them write to the same bank. (In fp32, 8 dims of 4 rows have no conflict but are
  // slower, because each row is another cache line to look up.)
  static constexpr int kUnit = kAsync && kTransposes ? 1 : 16 / static_cast<int>(sizeof(T));
  static constexpr int kUnitBytes = kUnit * static_cast<int>(sizeof(T));
  static constexpr int kUnits = kColumns / kUnit;
  static constexpr int kLanes = !kTransposes ? kUnits % 32 == 0   ? 32
                                               : kUnits % 16 == 0 ? 16
                                               : kUnits % 8 == 0  ? 8
                                                                  : 4
                                : kAsync     ? 16
                                             : 2;
  using Places = CopyPlaces<kRows, kUnits, kLanes, kThreads>;
  static constexpr bool kStaged = !kAsync && Places::kCount <= kMostStaged;

  static __device__ int Thread() { return kThreads == 32 ? ThreadIndex() % 32 : ThreadIndex(); }

  static __device__ float* At(float* to, int row, int column) {
    return to + row * Layout::kRow + column * Layout::kColumn;
  }

  // Calls visit(i, row, column) for each of the thread's places.
  template <typename Visit>
  static __device__ void ForEachPlace(const Visit& visit) {
    const Places places = Places::Of(Thread());
#pragma unroll(kStaged ? Places::kDown : 1)
    for (int down = 0; down < Places::kDown; ++down) {
      if (!places.Has(down)) break;
#pragma unroll
      for (int across = 0; across < Places::kAcross; ++across) {
        visit(down * Places::kAcross + across, places.Row(down), places.Unit(across) * kUnit);
      }
    }
  }

  static __device__ void CopyWhole(float* to, const Rows& rows, const T* from) {
    const Places places = Places::Of(Thread());
    const T* row = from + places.row * rows.token_stride + places.unit * kUnit;
    to = At(to, places.row, places.unit * kUnit);
#pragma unroll
    for (int down = 0; down < Places::kDown; ++down) {
      if (!places.Has(down)) break;
      CopyRow(At(to, down * Places::kDownStep, 0), row);
      row += Places::kDownStep * rows.token_stride;
    }
  }

  // The thread's units of one row.
  static __device__ void CopyRow(float* to, const T* from) {
#pragma unroll
    for (int across = 0; across < Places::kAcross; ++across) {
      const int column = across * Places::kAcrossStep * kUnit;
      CopyAsync<kUnitBytes>(At(to, 0, column), from + column);
    }
  }

  static __device__ void CopyPart(float* to, const Rows& rows, const T* from, int count,
                                  int columns) {
    ForEachPlace([&](int, int row, int column) {
      const bool valid = row < count && column < columns;
      CopyAsync<kUnitBytes>(At(to, row, column),
                            valid ? from + row * rows.token_stride + column : from, valid);
    });
  }

  static __device__ void CopyElements(float* to, const Rows& rows, const T* from, int count,
                                      int columns) {
    // In a transposed tile, 8 columns of 4 rows go to different banks.
    using Elements = CopyPlaces<kRows, kColumns, kTransposes ? 8 : 32, kThreads>;
    const Elements places = Elements::Of(Thread());
#pragma unroll 1
    for (int down = 0; down < Elements::kDown; ++down) {
      if (!places.Has(down)) break;
      const int row = places.Row(down);
#pragma unroll 1
      for (int across = 0; across < Elements::kAcross; ++across) {
        const int column = places.Unit(across);
        const bool valid = row < count && column < columns;
        *At(to, row, column) = valid ? ToFloat(from[row * rows.token_stride + column]) : 0;
      }
    }
  }

  static __device__ uint4 Load(int row, int column, const Rows& rows, const T* from, int count,
                               int columns) {
    if (row >= count || column >= columns) return {0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(from + row * rows.token_stride + column);
  }

  // 16 bytes of T as fp32.
  static __device__ void Store(float* to, uint4 chunk) {
    const T* const elements = reinterpret_cast<const T*>(&chunk);
#pragma unroll
    for (int i = 0; i < kUnit; i += kTransposes ? 1 : 4) {
      if constexpr (kTransposes) {
        to[i * Layout::kColumn] = ToFloat(elements[i]);
      } else {
        *reinterpret_cast<float4*>(to + i) =
            make_float4(ToFloat(elements[i]), ToFloat(elements[i + 1]), ToFloat(elements[i + 2]),
                        ToFloat(elements[i + 3]));
      }
    }
  }

  uint4 staged_[kStaged ? Places::kCount : 1];
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_FLOAT_TILE_COPY_CUH_
