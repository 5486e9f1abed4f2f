// Conversions between fp32, in which kernels compute, and the tensors' types. Conversions to 16
// bits round to nearest, ties to even.
#ifndef ATTENTION_DEVICE_CONVERT_CUH_
#define ATTENTION_DEVICE_CONVERT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace attnlab::device {

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__half x) { return __half2float(x); }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Stores four adjacent elements at once; `to` is aligned to four elements.
__device__ inline void StoreFour(float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; }
__device__ inline void StoreFour(__half* to, float4 v) {
  const __half2 pairs[2] = {__floats2half2_rn(v.x, v.y), __floats2half2_rn(v.z, v.w)};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
}
__device__ inline void StoreFour(__nv_bfloat16* to, float4 v) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v.x, v.y),
                                   __floats2bfloat162_rn(v.z, v.w)};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_CONVERT_CUH_
