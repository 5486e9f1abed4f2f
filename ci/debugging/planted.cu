// The kernel of planted.h. BUG(name) marks the line that a tool must name; LINE(name) marks another
// line that its output names. Tests look up the line numbers.
#include <cmath>
#include <cstdio>

#include "ci/debugging/planted.h"

namespace attnlab::debugging {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;

__device__ float WarpMax(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

__device__ float WarpSum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// Loads four floats of row `key` of K, from column `column` on.
template <Bug kBug>
__device__ float4 LoadKey(const Arguments& a, int64_t key, int column) {
  const char* row = reinterpret_cast<const char*>(a.k) + key * a.k_stride * sizeof(float);
  if constexpr (kBug == Bug::kIndexOverflow) {
    const unsigned offset = static_cast<unsigned>(key) * static_cast<unsigned>(a.k_stride * 4);
    row = reinterpret_cast<const char*>(a.k) + offset;  // BUG(index_overflow)
  }
  const float* at = reinterpret_cast<const float*>(row) + column;
  if constexpr (kBug == Bug::kMisaligned) {
    return *reinterpret_cast<const float4*>(at);  // BUG(misaligned)
  }
  if (reinterpret_cast<uintptr_t>(at) % sizeof(float4) == 0) {
    return *reinterpret_cast<const float4*>(at);  // LINE(vector_load)
  }
  float4 value;
  value.x = at[0];
  value.y = at[1];
  value.z = at[2];
  value.w = at[3];
  return value;
}

// One block per row. Tiles of keys go through shared memory, the first warp computes the online
// softmax, and each of the first kDim threads adds up one column of O.
template <Bug kBug>
__global__ void AttentionRow(Arguments a) {
  __shared__ __align__(16) float tile[kTile][kDim + 4];
  __shared__ float weights[kTile];
  __shared__ float rescale;
  const int64_t row = blockIdx.x;
  const int thread = threadIdx.x;
  const float* const q = a.q + row * kDim;
  float row_max = -INFINITY, o = 0;
  if (thread == 0 && kBug != Bug::kUninitialized) a.workspace[row] = 0;

  for (int64_t begin = 0; begin < a.keys; begin += kTile) {
    for (int i = thread; i < kTile * kDim / 4; i += kThreads) {
      const int key = i / (kDim / 4), column = i % (kDim / 4) * 4;
      float4 value = make_float4(0, 0, 0, 0);
      if (begin + key < a.keys || kBug == Bug::kOutOfBounds) {
        value = LoadKey<kBug>(a, begin + key, column);  // BUG(out_of_bounds)
      }
      *reinterpret_cast<float4*>(&tile[key][column]) = value;  // LINE(tile_store)
    }
    if constexpr (kBug != Bug::kMissingBarrier) __syncthreads();

    if (thread < kTile) {
      const bool seen = begin + thread < a.keys;
      // One key per lane. Lanes past the last key take part with a score of minus infinity, so
      // their weight is 0: every lane of the warp must reach the shuffles in WarpMax() and
      // WarpSum(), and the barriers below.
      float score = 0;
      for (int c = 0; c < kDim; ++c) {
        const float k = tile[thread][c];  // BUG(missing_barrier)
        score += q[c] * k;
      }
      score = seen ? score / sqrtf(kDim) : -INFINITY;
      const float new_max = fmaxf(row_max, WarpMax(score));
      const float relative_to = kBug == Bug::kStaleMaximum ? row_max : new_max;
      const float weight = expf(score - relative_to);  // BUG(stale_maximum)
      const float tile_sum = WarpSum(weight);
      weights[thread] = weight;
      if constexpr (kBug == Bug::kWarpMask) {
        if (thread >= kTile / 2) __syncwarp(0x0000FFFF);  // BUG(warp_mask)
      }
      if (thread == 0) {
        rescale = expf(row_max - new_max);
        const float sum = a.workspace[row];  // BUG(uninitialized)
        a.workspace[row] = sum * rescale + tile_sum;
        if (row == a.print_row) {
          printf("row %lld, keys from %lld: maximum %g, was %g; tile sum %g\n",
                 static_cast<long long>(row), static_cast<long long>(begin), new_max, row_max,
                 tile_sum);
        }
      }
      row_max = new_max;
    }
    __syncthreads();

    if (thread < kDim) {
      o *= rescale;
      for (int key = 0; key < kTile && begin + key < a.keys; ++key) {
        o += weights[key] * a.v[(begin + key) * kDim + thread];
      }
    }
    // All threads must be done with this tile before the next one replaces it.
    if constexpr (kBug == Bug::kDivergentBarrier) {
      if (begin + thread % kTile < a.keys) __syncthreads();  // BUG(divergent_barrier)
    } else {
      __syncthreads();
    }
  }
  if (thread < kDim) a.o[row * kDim + thread] = o / a.workspace[row];
}

template <Bug kBug>
cudaError_t Launch(const Arguments& a) {
  AttentionRow<kBug><<<static_cast<unsigned>(a.rows), kThreads>>>(a);
  return cudaGetLastError();
}

}  // namespace

cudaError_t Attention(Bug bug, const Arguments& a) {
  switch (bug) {
    case Bug::kNone:
      return Launch<Bug::kNone>(a);
    case Bug::kOutOfBounds:
      return Launch<Bug::kOutOfBounds>(a);
    case Bug::kMisaligned:
      return Launch<Bug::kMisaligned>(a);
    case Bug::kUninitialized:
      return Launch<Bug::kUninitialized>(a);
    case Bug::kMissingBarrier:
      return Launch<Bug::kMissingBarrier>(a);
    case Bug::kDivergentBarrier:
      return Launch<Bug::kDivergentBarrier>(a);
    case Bug::kWarpMask:
      return Launch<Bug::kWarpMask>(a);
    case Bug::kIndexOverflow:
      return Launch<Bug::kIndexOverflow>(a);
    case Bug::kStaleMaximum:
      return Launch<Bug::kStaleMaximum>(a);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::debugging
