// The kernel of tf32.h, for the files that instantiate it, one a head dim.
#ifndef ATTENTION_FA2_TF32_CUH_
#define ATTENTION_FA2_TF32_CUH_

#include "attention/device/launch.h"
#include "attention/device/query_tile.h"
#include "attention/fa2/grid.cuh"
#include "attention/fa2/tf32.h"
#include "attention/fa2/tf32_tile.cuh"

namespace attnlab::fa2 {

// Apart, so that its registers are none of the kernel's. It is called where V has NaN or infinity.
template <class Shape>
__device__ __noinline__ void AttendWithCareTf32(const device::Arguments& a, char* shared) {
  using Tile = Tf32Tile<Shape, true, true>;
  Tile(a, Tile::KeptIn(shared).tile, shared).Run();
}

template <class Shape, bool kCapped>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    Tf32Kernel(const __grid_constant__ device::Arguments a, const __grid_constant__ Grid grid) {
  extern __shared__ __align__(128) char shared[];
  const device::QueryTile tile = TileOfBlock(a, grid, Shape::kRows);
  if (tile.begin >= tile.end) return;
  if (Tf32Tile<Shape, kCapped, false>(a, tile, shared).Run()) return;
  AttendWithCareTf32<Shape>(a, shared);
}

template <int kHeadDim>
cudaError_t LaunchTf32(const Tf32Call& call) {
  using Shape = typename Tf32ShapeOf<kHeadDim>::Type;
  return device::Launch(
      call.arguments.softcap != 0 ? Tf32Kernel<Shape, true> : Tf32Kernel<Shape, false>,
      dim3(BlocksOf(call.grid)), dim3(Shape::kThreads), Shape::kSharedBytes, call.stream,
      call.arguments, call.grid);
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TF32_CUH_
