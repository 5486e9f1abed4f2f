// The kernel of tensor_cores.h, for the .cu files that instantiate it, one per head dim.
#ifndef ATTENTION_FA2_TENSOR_CORES_CUH_
#define ATTENTION_FA2_TENSOR_CORES_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/cuda/launch.h"
#include "attention/device/query_tile.h"
#include "attention/device/tile_order.h"
#include "attention/fa2/tensor_core_tile.cuh"
#include "attention/fa2/tensor_cores.h"

namespace attnlab::fa2 {

template <class Shape, typename T, bool kCaps>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    TensorCoreKernel(const __grid_constant__ device::Arguments a,
                     const __grid_constant__ device::Grid grid) {
  extern __shared__ __align__(128) char shared[];
  const device::QueryTile tile = TileOfBlock(a, grid, blockIdx.x, Shape::kRows);
  if (tile.begin >= tile.end) return;
  TensorCoreTile<Shape, T, kCaps>(a, tile, shared).Run();
}

template <class Shape, typename T, bool kCaps>
cudaError_t LaunchKernel(const TensorCoreCall& call) {
  return device::Launch(TensorCoreKernel<Shape, T, kCaps>, dim3(BlocksOf(call.grid)),
                        dim3(Shape::kThreads), Shape::kSharedBytes, call.stream, call.arguments,
                        call.grid);
}

template <class Shape, typename T, bool kPlain>
cudaError_t LaunchShape(const TensorCoreCall& call) {
  if constexpr (kPlain) {
    if (call.arguments.softcap == 0) return LaunchKernel<Shape, T, false>(call);
  }
  return LaunchKernel<Shape, T, true>(call);
}

template <class Shape, bool kPlain>
cudaError_t LaunchElement(const TensorCoreCall& call) {
  switch (call.element) {
    case device::Element::kFloat16:
      return LaunchShape<Shape, __half, kPlain>(call);
    case device::Element::kBFloat16:
      return LaunchShape<Shape, __nv_bfloat16, kPlain>(call);
    case device::Element::kFloat32:
      break;
  }
  return cudaErrorInvalidValue;
}

template <int kHeadDim>
cudaError_t LaunchTensorCores(const TensorCoreCall& call) {
  using Shapes = TensorCoreShapes<kHeadDim>;
  switch (call.size) {
    case TileSize::kLarge:
      return LaunchElement<typename Shapes::Large, Shapes::kPlain>(call);
    case TileSize::kMedium:
      return LaunchElement<typename Shapes::Medium, false>(call);
    case TileSize::kSmall:
      if (call.element != device::Element::kFloat16) return cudaErrorInvalidValue;
      return LaunchShape<typename Shapes::Small, __half, false>(call);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORES_CUH_
