#include "attention/fa2/call.h"

#include "attention/fa2/cuda_cores.h"
#include "attention/fa2/tensor_cores.h"
#include "attention/fa2/tf32.h"
#include "attention/fa2/wmma.h"

namespace attnlab::fa2 {
namespace {

template <int kHeadDim>
struct HeadDim {
  static constexpr int kValue = kHeadDim;
};

// launch(HeadDim<…>()) for one of the head dims that tiles are padded to.
template <typename Launch>
cudaError_t ForHeadDim(int head_dim, const Launch& launch) {
  switch (head_dim) {
    case 32:
      return launch(HeadDim<32>());
    case 64:
      return launch(HeadDim<64>());
    case 96:
      return launch(HeadDim<96>());
    case 128:
      return launch(HeadDim<128>());
    case 192:
      return launch(HeadDim<192>());
    case 256:
      return launch(HeadDim<256>());
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

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
      return ForHeadDim(options.mma_tile.head_dim,
                        [&](auto dim) { return LaunchTensorCores<decltype(dim)::kValue>(call); });
    }
    case Engine::kWmma: {
      WmmaCall call;
      call.arguments = arguments;
      call.grid = options.grid;
      call.element = element;
      call.stream = stream;
      return ForHeadDim(options.wmma_tile.head_dim,
                        [&](auto dim) { return LaunchWmma<decltype(dim)::kValue>(call); });
    }
    case Engine::kTf32x3: {
      Tf32Call call;
      call.arguments = arguments;
      call.grid = options.grid;
      call.stream = stream;
      return ForHeadDim(options.tf32_tile.head_dim,
                        [&](auto dim) { return LaunchTf32<decltype(dim)::kValue>(call); });
    }
    case Engine::kCudaCores: {
      CudaCoreCall call;
      call.arguments = arguments;
      call.grid = options.grid;
      call.tile = options.cuda_core_tile;
      call.element = element;
      call.stream = stream;
      return ForHeadDim(options.cuda_core_tile.dim,
                        [&](auto dim) { return LaunchCudaCores<decltype(dim)::kValue>(call); });
    }
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::fa2
