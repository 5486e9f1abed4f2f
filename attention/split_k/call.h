// A launch of the split-K kernels: what the host hands to the sources that are compiled for the GPU.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_SPLIT_K_CALL_H_
#define ATTENTION_SPLIT_K_CALL_H_

#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/split_k/split.h"
#include "cuda_runtime.h"

namespace attnlab::split_k {

struct SplitCall {
  device::Arguments arguments;
  SplitGrid grid;
  Workspace workspace;
  device::Element element = device::Element::kBFloat16;
  cudaStream_t stream = nullptr;
};

// The parts of all tiles, 16-bit elements on tensor cores or fp32 on CUDA cores. kDim: 64, 128 or
// 256, at least d and dv. With one part per tile they write O and LSE.
template <int kDim>
cudaError_t LaunchTensorCores(const SplitCall& call);
template <int kDim>
cudaError_t LaunchCudaCores(const SplitCall& call);

// O and LSE from the parts.
cudaError_t LaunchMerge(const SplitCall& call);

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_CALL_H_
