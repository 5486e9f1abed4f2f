// The kernel of portable_call.h on tensor cores, for the .cu files that instantiate it, one per
// head dim.
#ifndef ATTENTION_WARP_SPECIALIZED_PORTABLE_CUH_
#define ATTENTION_WARP_SPECIALIZED_PORTABLE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/cuda/launch.h"
#include "attention/device/kv_stream.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/tile_order.h"
#include "attention/warp_specialized/portable_call.h"
#include "attention/warp_specialized/portable_ring.cuh"
#include "attention/warp_specialized/portable_tile.cuh"

namespace attnlab::warp_specialized {

template <class Shape, typename T>
__global__ void __launch_bounds__(32 * Shape::kMostWarps, 1)
    PortableKernel(const __grid_constant__ device::Arguments a,
                   const __grid_constant__ device::Grid grid,
                   const __grid_constant__ PortableBlock block) {
  extern __shared__ __align__(128) char shared[];
  const device::QueryTile tile = TileOfBlock(a, grid, blockIdx.x, Shape::Rows(block));
  if (tile.begin >= tile.end) return;
  const device::KvTiles tiles = tile.Tiles(a.mask, Shape::kKeys);
  // The last query tile of a sequence may have no rows for some consumers. They exit at once.
  const int row_groups =
      static_cast<int>((tile.end - tile.begin + Shape::kWarpRows - 1) / Shape::kWarpRows);
  const int consumers = min(block.consumers, row_groups * Shape::kSharing);
  const int items = 2 * static_cast<int>(tiles.Count(Shape::kKeys));
  const PortableRing ring(shared + Shape::kRing, block.stages, items, consumers);
  const int warp = device::Uniform(static_cast<int>(threadIdx.x) / 32);
  if (warp < consumers) Consumer<Shape, T>::CopyQ(a, block, tile, shared);
  if (threadIdx.x == 32 * block.consumers) {  // a producer's
    const bool streams =
        a.k.whole_chunks && a.v.whole_chunks && a.d == Shape::kHeadDim && a.dv == Shape::kHeadDim;
    KeptIn<Shape>(shared) = {tile, device::Keys::Of(tiles, tile.kv.length, Shape::kKeys, streams),
                             items};
    ring.Init();
  }
  __syncthreads();
  if (warp >= block.consumers) {
    Produce<Shape, T>(a, block, shared, ring, warp - block.consumers);
  } else if (warp < consumers) {
    Consumer<Shape, T>(a, block, shared, ring).Consume();
  }
}

template <class Shape, typename T>
cudaError_t LaunchPortableOf(const PortableCall& call) {
  return device::Launch(PortableKernel<Shape, T>, dim3(BlocksOf(call.grid)),
                        dim3(call.block.Threads()), Shape::SharedBytes(call.block), call.stream,
                        call.arguments, call.grid, call.block);
}

template <class Shape>
cudaError_t LaunchPortable(const PortableCall& call) {
  switch (call.element) {
    case device::Element::kFloat16:
      return LaunchPortableOf<Shape, __half>(call);
    case device::Element::kBFloat16:
      return LaunchPortableOf<Shape, __nv_bfloat16>(call);
    case device::Element::kFloat32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_PORTABLE_CUH_
