// FlashAttention-2's structure on CUDA cores, for fp32. There is one block per query tile, as on
// tensor cores; device/cuda_core_tile.cuh computes the tile.
#ifndef ATTENTION_FA2_CUDA_CORES_H_
#define ATTENTION_FA2_CUDA_CORES_H_

#include "attention/device/arguments.h"
#include "attention/device/cuda_core_table.h"
#include "attention/device/tile_order.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

struct CudaCoreCall {
  device::Arguments arguments;  // Q, K, V and O of fp32
  device::Grid grid;
  device::CudaCoreTile tile;
  cudaStream_t stream = nullptr;
};

// kDim is the tile's head dim.
template <int kDim>
cudaError_t LaunchCudaCores(const CudaCoreCall& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_CUDA_CORES_H_
