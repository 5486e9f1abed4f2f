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

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    PrefixInputsKernel(const __grid_constant__ PrefixInputs inputs) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < inputs.rows.Pieces()) inputs.CopyPiece<T, kWidth>(i);
  inputs.SetLengths(i);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    PrefixMergeKernel(const __grid_constant__ PrefixMerge merge) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < merge.rows.Pieces()) merge.MergePiece<T, kWidth, Convert>(i);
}

dim3 BlocksFor(uint32_t threads) { return dim3((threads + kThreads - 1) / kThreads); }

template <typename T>
cudaError_t LaunchOf(const PrefixInputs& inputs, cudaStream_t stream) {
  return device::Launch(
      inputs.rows.tensor.whole_chunks ? PrefixInputsKernel<T, 16 / sizeof(T)>
                                      : PrefixInputsKernel<T, 1>,
      BlocksFor(std::max({inputs.rows.Pieces(), inputs.rows.count, inputs.chunks})), dim3(kThreads),
      0, stream, inputs);
}

template <typename T>
cudaError_t LaunchOf(const PrefixMerge& merge, cudaStream_t stream) {
  return device::Launch(merge.rows.tensor.whole_chunks ? PrefixMergeKernel<T, 16 / sizeof(T)>
                                                       : PrefixMergeKernel<T, 1>,
                        BlocksFor(merge.rows.Pieces()), dim3(kThreads), 0, stream, merge);
}

}  // namespace

cudaError_t LaunchPrefixInputs(const PrefixInputs& inputs, device::Element element,
                               cudaStream_t stream) {
  return element == device::Element::kFloat32 ? LaunchOf<uint32_t>(inputs, stream)
                                              : LaunchOf<uint16_t>(inputs, stream);
}

cudaError_t LaunchPrefixMerge(const PrefixMerge& merge, device::Element element,
                              cudaStream_t stream) {
  switch (element) {
    case device::Element::kFloat32:
      return LaunchOf<float>(merge, stream);
    case device::Element::kFloat16:
      return LaunchOf<__half>(merge, stream);
    case device::Element::kBFloat16:
      return LaunchOf<__nv_bfloat16>(merge, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::paged
