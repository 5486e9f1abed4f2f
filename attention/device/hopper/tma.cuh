// TMA: copies of tiles between a tensor and shared memory. One thread starts a copy. tensor_map.h
// describes the tensor.
//
// Needs 9.0. Source: PTX ISA 9.0, "cp.async.bulk.tensor".
#ifndef ATTENTION_DEVICE_HOPPER_TMA_CUH_
#define ATTENTION_DEVICE_HOPPER_TMA_CUH_

#include <cuda.h>

#include <cstdint>
#include <cuda/ptx>

namespace attnlab::device {

// Where a tile begins.
struct TileOrigin {
  int token, head, batch;
};

// Starts to copy kBlocks blocks of kColumns columns (128 bytes), from `column` on, to `to`, each `rows` rows after the
// one before. A block has as many rows as the map's box: all `rows` of a tile, or a part of them, a multiple of 8. Its
// bytes are reported to `barrier`. Elements beyond the tensor are zeros, and count as bytes. All kCluster blocks
// of a cluster get them at the same place, and each learns of them from its own barrier.
template <int kBlocks, int kColumns = 64, int kCluster = 1>
__device__ void LoadTile(const CUtensorMap& map, TileOrigin from, char* to, int rows,
                         uint64_t* barrier, int column = 0) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const int32_t at[5] = {column + kColumns * i, 0, from.token, from.head, from.batch};
    if constexpr (kCluster > 1) {
      cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global,
                                      to + i * rows * 128, &map, at, barrier,
                                      static_cast<uint16_t>((1 << kCluster) - 1));
    } else {
      cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global,
                                      to + i * rows * 128, &map, at, barrier);
    }
  }
}

// Starts to copy such blocks from shared memory, each `bytes` after the one before, to the tensor. Elements beyond it
// are left out. Threads that wrote the blocks have called FenceSharedStores() before. Only the thread that calls this
// can wait for it.
template <int kBlocks, int kColumns = 64>
__device__ void StoreTile(const CUtensorMap& map, TileOrigin to, const char* from, int bytes) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const int32_t at[5] = {kColumns * i, 0, to.token, to.head, to.batch};
    cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_global, cuda::ptx::space_shared, &map, at,
                                    from + i * bytes);
  }
  cuda::ptx::cp_async_bulk_commit_group();
}
// Waits until this thread's stores have read shared memory. What they write is there when the kernel has ended.
__device__ inline void AwaitReadsOfStores() {
  cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_HOPPER_TMA_CUH_
