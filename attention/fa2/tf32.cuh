// The kernel of tf32.h, for the .cu files that instantiate it, one per head dim.
#ifndef ATTENTION_FA2_TF32_CUH_
#define ATTENTION_FA2_TF32_CUH_

#include "attention/cuda/launch.h"
#include "attention/device/query_tile.h"
#include "attention/device/tile_order.h"
#include "attention/fa2/tf32.h"
#include "attention/fa2/tf32_tile.cuh"

namespace attnlab::fa2 {

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    Tf32Kernel(const __grid_constant__ device::Arguments a,
               const __grid_constant__ device::Grid grid) {
  extern __shared__ __align__(128) char shared[];
  const device::QueryTile tile = TileOfBlock(a, grid, blockIdx.x, Shape::kRows);
  if (tile.begin >= tile.end) return;
  Tf32Tile<Shape>(a, tile, shared).Run();
}

template <int kHeadDim>
cudaError_t LaunchTf32(const Tf32Call& call) {
  using Shape = typename Tf32ShapeOf<kHeadDim>::Type;
  return device::Launch(Tf32Kernel<Shape>, dim3(BlocksOf(call.grid)), dim3(Shape::kThreads),
                        Shape::kSharedBytes, call.stream, call.arguments, call.grid);
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_CUH_
