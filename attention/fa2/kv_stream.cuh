// K or V on its way to shared memory, a tile of keys after the other.
#ifndef ATTENTION_FA2_KV_STREAM_CUH_
#define ATTENTION_FA2_KV_STREAM_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/tile_copy.cuh"

namespace attnlab::fa2 {

// Tiles of kKeys rows of kDim elements, copied by kThreads threads. Each thread keeps the address
// of what it copies first of a tile, so that the walk has only to add to it.
template <typename T, int kKeys, int kDim, int kThreads>
class KvStream {
  using Copy = device::TileCopy<T, kKeys, kDim, kThreads>;

 public:
  static constexpr int kBytes = Copy::kBytes;

  // At the tile that begins with this row.
  __device__ void Begin(const T* first_row, const device::Rows& rows) {
    from_ = first_row + Copy::Offset(rows.token_stride);
  }

  // Begins to copy the tile whole, where there is all of it, and of kDim columns in whole chunks.
  __device__ void CopyWhole(char* to, const device::Rows& rows, int thread) const {
    Copy::CopyWhole(to, from_, rows.token_stride, thread);
  }
  // Begins to copy its first `count` rows, or kKeys, of `dim` columns, in any alignment.
  __device__ void CopyRows(char* to, const device::Rows& rows, int count, int dim) const {
    const T* const first_row = from_ - Copy::Offset(rows.token_stride);
    Copy::Copy(to, count < kKeys ? count : kKeys, dim, rows.whole_chunks,
               [&](int row) { return first_row + row * rows.token_stride; });
  }

  // On to the next tile.
  __device__ void Advance(const device::Rows& rows) { from_ += kKeys * rows.token_stride; }

 private:
  const T* from_;
};

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_KV_STREAM_CUH_
