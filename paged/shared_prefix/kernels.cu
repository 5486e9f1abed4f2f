#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/convert.cuh"
#include "paged/shared_prefix/launch.h"
#include "paged/shared_prefix/rows.h"

namespace attnlab::paged {
namespace {

constexpr int kThreads = 256;

struct Convert {
  template <typename T>
  static __device__ float ToFloat(T x) {
    return device::ToFloat(x);
  }
  template <typename T>
  static __device__ T FromFloat(float x) {
    return device::FromFloat<T>(x);
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PrefixInputsKernel(const __grid_constant__ PrefixInputs inputs) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < inputs.rows.Elements()) inputs.CopyElement<T>(i);
  inputs.SetLengths(i);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PrefixMergeKernel(const __grid_constant__ PrefixMerge merge) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < merge.rows.Elements()) merge.MergeElement<T, Convert>(i);
}

dim3 BlocksFor(uint32_t threads) { return dim3((threads + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t LaunchPrefixInputs(const PrefixInputs& inputs, device::Element element,
                               cudaStream_t stream) {
  const dim3 blocks =
      BlocksFor(std::max({inputs.rows.Elements(), inputs.rows.count, inputs.chunks}));
  return element == device::Element::kFloat32 ? device::Launch(PrefixInputsKernel<uint32_t>, blocks,
                                                               dim3(kThreads), 0, stream, inputs)
                                              : device::Launch(PrefixInputsKernel<uint16_t>, blocks,
                                                               dim3(kThreads), 0, stream, inputs);
}

cudaError_t LaunchPrefixMerge(const PrefixMerge& merge, device::Element element,
                              cudaStream_t stream) {
  const dim3 blocks = BlocksFor(merge.rows.Elements());
  switch (element) {
    case device::Element::kFloat32:
      return device::Launch(PrefixMergeKernel<float>, blocks, dim3(kThreads), 0, stream, merge);
    case device::Element::kFloat16:
      return device::Launch(PrefixMergeKernel<__half>, blocks, dim3(kThreads), 0, stream, merge);
    case device::Element::kBFloat16:
      return device::Launch(PrefixMergeKernel<__nv_bfloat16>, blocks, dim3(kThreads), 0, stream,
                            merge);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::paged
