// The kernel of forward.h, for the .cu files that instantiate it, one per head dim.
#ifndef ATTENTION_FA1_FORWARD_CUH_
#define ATTENTION_FA1_FORWARD_CUH_

#include <algorithm>
#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/cuda_core_dispatch.cuh"
#include "attention/device/cuda_core_tile.cuh"
#include "attention/device/query_tile.h"
#include "attention/fa1/forward.h"

namespace attnlab::fa1 {

// Heads that share a KV head are neighbours, and so are their blocks: the K and V that one block
// reads, the others find in L2.
template <class Shape, typename T>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    ForwardKernel(const __grid_constant__ device::Arguments a) {
  extern __shared__ float4 shared[];
  for (int64_t pair = blockIdx.x; pair < a.b * a.hq; pair += gridDim.x) {
    for (int32_t index = 0;; ++index) {
      // The sequence and head are computed again for every tile. Kept from one tile to the next,
      // they would cost registers that the tile needs.
      asm volatile("" : "+l"(pair));
      const device::QueryTile tile = device::QueryTileOf(
          a, pair / a.hq, static_cast<int32_t>(pair % a.hq), /*pack=*/1, index, Shape::kRows);
      if (tile.begin >= tile.end) break;
      device::CudaCoreAttention<Shape, T>(a, tile, reinterpret_cast<float*>(shared));
      __syncthreads();  // the next tile uses the same shared memory
    }
  }
}

template <int kDim>
cudaError_t ForwardOfDim(const device::Arguments& a, const device::CudaCoreTile& tile,
                         device::Element element, cudaStream_t stream) {
  return device::ForCudaCoreTile<kDim, /*kMedium=*/false, float, __half, __nv_bfloat16>(
      tile, element, [&](auto shape, auto type) {
        using Shape = decltype(shape);
        using T = typename decltype(type)::Type;
        const auto blocks = static_cast<unsigned>(std::min<int64_t>(a.b * a.hq, INT32_MAX));
        return device::Launch(ForwardKernel<Shape, T>, dim3(blocks), dim3(Shape::kThreads),
                              Shape::kSharedBytes, stream, a);
      });
}

}  // namespace attnlab::fa1

#endif  // ATTENTION_FA1_FORWARD_CUH_
