// The kernel of tensor_cores.h, for the files that instantiate it, one a head dim.
#ifndef ATTENTION_FA2_TENSOR_CORES_CUH_
#define ATTENTION_FA2_TENSOR_CORES_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/device/launch.h"
#include "attention/device/query_tile.h"
#include "attention/fa2/grid.cuh"
#include "attention/fa2/tensor_core_tile.cuh"
#include "attention/fa2/tensor_cores.h"

namespace attnlab::fa2 {

// Apart, so that its registers are none of the kernel's. It is called where V has NaN or infinity.
template <class Shape, typename T>
__device__ __noinline__ void AttendWithCare(const device::Arguments& a, char* shared) {
  using Tile = TensorCoreTile<Shape, T, true, true>;
  Tile(a, Tile::KeptIn(shared).tile, shared).Run();
}

template <class Shape, typename T, bool kCapped>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    TensorCoreKernel(const __grid_constant__ device::Arguments a,
                     const __grid_constant__ Grid grid) {
  extern __shared__ __align__(128) char shared[];
  const device::QueryTile tile = TileOfBlock(a, grid, Shape::kRows);
  if (tile.begin >= tile.end) return;
  if (TensorCoreTile<Shape, T, kCapped, false>(a, tile, shared).Run()) return;
  AttendWithCare<Shape, T>(a, shared);
}

template <class Shape, typename T, bool kCapped>
cudaError_t LaunchShape(const TensorCoreCall& call) {
  return device::Launch(TensorCoreKernel<Shape, T, kCapped>, dim3(BlocksOf(call.grid)),
                        dim3(Shape::kThreads), Shape::kSharedBytes, call.stream, call.arguments,
                        call.grid);
}

template <class Shape>
cudaError_t LaunchElement(const TensorCoreCall& call) {
  const bool capped = call.arguments.softcap != 0;
  switch (call.element) {
    case device::Element::kFloat16:
      return capped ? LaunchShape<Shape, __half, true>(call)
                    : LaunchShape<Shape, __half, false>(call);
    case device::Element::kBFloat16:
      return capped ? LaunchShape<Shape, __nv_bfloat16, true>(call)
                    : LaunchShape<Shape, __nv_bfloat16, false>(call);
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
      return LaunchElement<typename Shapes::Large>(call);
    case TileSize::kMedium:
      return LaunchElement<typename Shapes::Medium>(call);
    case TileSize::kSmall:
      return LaunchElement<typename Shapes::Small>(call);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORES_CUH_
