// The kernel of cuda_cores.h, for the .cu files that instantiate it, one per head dim.
#ifndef ATTENTION_FA2_CUDA_CORES_CUH_
#define ATTENTION_FA2_CUDA_CORES_CUH_

#include "attention/cuda/launch.h"
#include "attention/device/cuda_core_dispatch.cuh"
#include "attention/device/cuda_core_tile.cuh"
#include "attention/device/tile_order.h"
#include "attention/fa2/cuda_cores.h"

namespace attnlab::fa2 {

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    CudaCoreKernel(const __grid_constant__ device::Arguments a,
                   const __grid_constant__ device::Grid grid) {
  extern __shared__ float4 shared[];
  const device::QueryTile tile = TileOfBlock(a, grid, blockIdx.x, Shape::kRows);
  if (tile.begin >= tile.end) return;
  device::CudaCoreAttention<Shape, float>(a, tile, reinterpret_cast<float*>(shared));
}

template <int kDim>
cudaError_t LaunchCudaCores(const CudaCoreCall& call) {
  return device::ForCudaCoreTile<kDim, /*kMedium=*/true, float>(
      call.tile, device::Element::kFloat32, [&](auto shape, auto) {
        using Shape = decltype(shape);
        return device::Launch(CudaCoreKernel<Shape>, dim3(BlocksOf(call.grid)),
                              dim3(Shape::kThreads), Shape::kSharedBytes, call.stream,
                              call.arguments, call.grid);
      });
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_CUDA_CORES_CUH_
