// The largest size among elements of a thread, a warp, a thread block or a cluster of them: as the bits of a float, so
// that NaN is the largest.
#ifndef ATTENTION_FP8_LARGEST_CUH_
#define ATTENTION_FP8_LARGEST_CUH_

#include <cstdint>

#include "attention/device/hopper/cluster.cuh"
#include "attention/device/hopper/mbarrier.cuh"

namespace attnlab::fp8 {

// The larger size, or NaN if there is one.
__device__ inline float Larger(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
  return larger;
#else
  // Of floats without their signs, the order is that of their bits, and NaN is above all.
  return __int_as_float(max(__float_as_int(fabsf(a)), __float_as_int(fabsf(b))));
#endif
}

// The largest size of a lane's elements, as bits.
template <int kCount>
__device__ uint32_t LargestOf(const float (&x)[kCount]) {
  float largest[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) largest[i % 4] = Larger(largest[i % 4], x[i]);
  return __float_as_uint(Larger(Larger(largest[0], largest[1]), Larger(largest[2], largest[3])));
}

__device__ inline uint32_t LargestOfWarp(uint32_t bits) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xFFFFFFFF, bits);
#else
#pragma unroll
  for (int i = 16; i > 0; i /= 2) bits = max(bits, __shfl_xor_sync(0xFFFFFFFF, bits, i));
  return bits;
#endif
}

// The largest `bits` of the thread block. `memory`: a word per warp, not in use by the call before.
__device__ inline uint32_t LargestOfBlock(uint32_t bits, uint32_t* memory) {
  bits = LargestOfWarp(bits);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) memory[threadIdx.x / 32] = bits;
  __syncthreads();
  return LargestOfWarp(lane < warps ? memory[lane] : 0);
}

// What is largest in each warp of a cluster, as each of its blocks learns it. Of one head and the next in turn, since a
// warp may be ahead by one.
struct OfCluster {
  device::Barrier sent[2];
  float2 largest[2][32];
};

// The largest `bits` of a cluster of kBlocks thread blocks, of its i-th head. All threads call it. Each warp tells all
// blocks: a barrier of the block before that would be one more wait.
template <int kBlocks>
__device__ uint32_t LargestOfCluster(uint32_t bits, OfCluster& of_cluster, int i) {
  device::Barrier& sent = of_cluster.sent[i % 2];
  float2* const largest = of_cluster.largest[i % 2];
  const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  bits = LargestOfWarp(bits);
  if (threadIdx.x == 0) sent.ArriveAndExpect(kBlocks * warps * sizeof(float2));
  if (lane < kBlocks) {
    const auto there = [&](const void* here) {
      return device::InBlock(static_cast<uint32_t>(__cvta_generic_to_shared(here)), lane);
    };
    device::StoreAsync(there(largest + device::BlockOfCluster() * warps + warp),
                       make_float2(__uint_as_float(bits), 0), there(sent.Word()));
  }
  sent.Wait(i / 2 % 2);
  return LargestOfWarp(lane < kBlocks * warps ? __float_as_uint(largest[lane].x) : 0);
}

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_LARGEST_CUH_
