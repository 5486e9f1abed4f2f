// Conversions between fp32, in which kernels compute, and the tensors' types. Conversions to 16
// bits round to nearest, ties to even.
#ifndef ATTENTION_DEVICE_CONVERT_CUH_
#define ATTENTION_DEVICE_CONVERT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

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

// Both elements of a word, the one in the lower half first. PackPair() in mma.cuh is the inverse.
template <typename T>
__device__ float2 UnpackPair(uint32_t word);
template <>
__device__ inline float2 UnpackPair<__half>(uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
template <>
__device__ inline float2 UnpackPair<__nv_bfloat16>(uint32_t word) {
  // The upper one needs no shift, which the compiler does not see in __bfloat1622float2().
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000));
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
