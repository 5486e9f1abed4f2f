#include "attention/fa2/call.h"

#include "attention/device/head_dim.h"
#include "attention/fa2/cuda_cores.h"
#include "attention/fa2/tensor_cores.h"
#include "attention/fa2/tf32.h"

namespace attnlab::fa2 {

cudaError_t Run(const device::Arguments& arguments, device::Element element, const Options& options,
                cudaStream_t stream) {
  if (BlocksOf(options.grid) == 0) return cudaSuccess;
  switch (options.engine) {
    case Engine::kMma: {
      TensorCoreCall call;
      call.arguments = arguments;
      call.grid = options.grid;
      call.element = element;
      call.size = options.mma_tile.size;
      call.stream = stream;
      return device::ForHeadDim(options.mma_tile.head_dim, [&](auto dim) {
        return LaunchTensorCores<decltype(dim)::kValue>(call);
      });
    }
    case Engine::kTf32x3: {
      Tf32Call call;
      call.arguments = arguments;
      call.grid = options.grid;
      call.stream = stream;
      return device::ForHeadDim(options.tf32_tile.head_dim,
                                [&](auto dim) { return LaunchTf32<decltype(dim)::kValue>(call); });
    }
    case Engine::kCudaCores: {
      CudaCoreCall call;
      call.arguments = arguments;
      call.grid = options.grid;
      call.tile = options.cuda_core_tile;
      call.stream = stream;
      return device::ForHeadDim(options.cuda_core_tile.dim, [&](auto dim) {
        return LaunchCudaCores<decltype(dim)::kValue>(call);
      });
    }
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::fa2
