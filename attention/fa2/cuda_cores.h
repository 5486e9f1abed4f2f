// FlashAttention-2's structure on CUDA cores: for fp32, and for bf16 where tensor cores do not know
// it. One block a query tile, as on tensor cores; the tile itself is device/cuda_core_tile.cuh.
#ifndef ATTENTION_FA2_CUDA_CORES_H_
#define ATTENTION_FA2_CUDA_CORES_H_

#include "attention/device/arguments.h"
#include "attention/device/cuda_core_table.h"
#include "attention/device/element.h"
#include "attention/fa2/grid.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

struct CudaCoreCall {
  device::Arguments arguments;
  Grid grid;
  device::CudaCoreTile tile;
  device::Element element = device::Element::kFloat32;  // not kFloat16
  cudaStream_t stream = nullptr;
};

// kDim: that of the tile.
template <int kDim>
cudaError_t LaunchCudaCores(const CudaCoreCall& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_CUDA_CORES_H_
