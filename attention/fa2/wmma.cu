#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "attention/device/launch.h"
#include "attention/device/query_tile.h"
#include "attention/fa2/grid.cuh"
#include "attention/fa2/wmma.h"
#include "attention/fa2/wmma_tile.cuh"

namespace attnlab::fa2 {
namespace {

// Whether the tensor cores of the code's compute capability multiply them: before 8.0 wmma has no
// fragments of bf16, and no kernel asks for them.
template <typename T>
__device__ constexpr bool Multiplies() {
#if __CUDA_ARCH__ >= 800
  return true;
#else
  return !std::is_same_v<T, __nv_bfloat16>;
#endif
}

template <class Shape, typename T>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    WmmaKernel(const __grid_constant__ device::Arguments a, const __grid_constant__ Grid grid) {
  if constexpr (Multiplies<T>()) {
    extern __shared__ __align__(128) char shared[];
    __shared__ device::QueryTile tile;
    if (threadIdx.x == 0) tile = TileOfBlock(a, grid, Shape::kRows);
    __syncthreads();
    if (tile.begin >= tile.end) return;
    WmmaTile<Shape, T>(a, tile, shared).Run();
  } else {
    __trap();
  }
}

}  // namespace

template <int kHeadDim>
cudaError_t LaunchWmma(const WmmaCall& call) {
  using Shape = WmmaShape<kHeadDim>;
  const auto launch = [&](auto kernel) {
    return device::Launch(kernel, dim3(BlocksOf(call.grid)), dim3(Shape::kThreads),
                          Shape::kSharedBytes, call.stream, call.arguments, call.grid);
  };
  switch (call.element) {
    case device::Element::kFloat16:
      return launch(WmmaKernel<Shape, __half>);
    case device::Element::kBFloat16:
      return launch(WmmaKernel<Shape, __nv_bfloat16>);
    case device::Element::kFloat32:
      break;
  }
  return cudaErrorInvalidValue;
}

template cudaError_t LaunchWmma<32>(const WmmaCall&);
template cudaError_t LaunchWmma<64>(const WmmaCall&);
template cudaError_t LaunchWmma<96>(const WmmaCall&);
template cudaError_t LaunchWmma<128>(const WmmaCall&);
template cudaError_t LaunchWmma<192>(const WmmaCall&);
template cudaError_t LaunchWmma<256>(const WmmaCall&);

}  // namespace attnlab::fa2
