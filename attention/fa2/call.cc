#include "attention/fa2/call.h"

#include "attention/fa2/cuda_cores.h"
#include "attention/fa2/tensor_cores.h"

namespace attnlab::fa2 {
namespace {

cudaError_t Launch(int head_dim, const TensorCoreCall& call) {
  switch (head_dim) {
    case 32:
      return LaunchTensorCores<32>(call);
    case 64:
      return LaunchTensorCores<64>(call);
    case 96:
      return LaunchTensorCores<96>(call);
    case 128:
      return LaunchTensorCores<128>(call);
    case 192:
      return LaunchTensorCores<192>(call);
    case 256:
      return LaunchTensorCores<256>(call);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t Launch(int head_dim, const CudaCoreCall& call) {
  switch (head_dim) {
    case 32:
      return LaunchCudaCores<32>(call);
    case 64:
      return LaunchCudaCores<64>(call);
    case 96:
      return LaunchCudaCores<96>(call);
    case 128:
      return LaunchCudaCores<128>(call);
    case 192:
      return LaunchCudaCores<192>(call);
    case 256:
      return LaunchCudaCores<256>(call);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t Run(const device::Arguments& arguments, device::Element element, const Options& options,
                cudaStream_t stream) {
  if (BlocksOf(options.grid) == 0) return cudaSuccess;
  if (options.tensor_cores) {
    TensorCoreCall call;
    call.arguments = arguments;
    call.grid = options.grid;
    call.element = element;
    call.size = options.tensor_core_tile.size;
    call.stream = stream;
    return Launch(options.tensor_core_tile.head_dim, call);
  }
  CudaCoreCall call;
  call.arguments = arguments;
  call.grid = options.grid;
  call.tile = options.cuda_core_tile;
  call.element = element;
  call.stream = stream;
  return Launch(options.cuda_core_tile.dim, call);
}

}  // namespace attnlab::fa2
