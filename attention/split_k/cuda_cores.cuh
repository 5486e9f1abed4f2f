// A part of a query tile on CUDA cores, for fp32.
//
// Lanes form groups. A group takes one key at a time; each of its lanes has 16 of the dims of Q, K, V
// and O, in registers. So a group keeps the state of four rows without exchanging anything but their
// scores. At the end the groups' parts are merged in shared memory.
#ifndef ATTENTION_SPLIT_K_CUDA_CORES_CUH_
#define ATTENTION_SPLIT_K_CUDA_CORES_CUH_

#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/arguments.h"
#include "attention/device/online_softmax.h"
#include "attention/split_k/call.h"
#include "attention/split_k/parts.cuh"
#include "attention/split_k/shape.h"
#include "attention/split_k/split.h"
#include "attention/split_k/tile_rows.h"

namespace attnlab::split_k {

template <class Shape>
class LaneRows {
  static constexpr int kRows = Shape::kRows, kFours = Shape::kLaneDims / 4, kLanes = Shape::kLanes;
  using Dims = float4[kFours];

 public:
  __device__ LaneRows(const device::Arguments& a, const SplitGrid& grid, const TileRows& tile)
      : a_(a), tile_(tile) {
    constexpr float kLog2E = 1.44269504088896341f;
    const float scale = a.softcap != 0 ? a.scale_by_softcap : a.scale * kLog2E;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = tile.begin + r;
      const bool exists = row < tile.end;
      Load(a.q, tile.Offset(grid, a.q, exists ? row : tile.begin), a.d, exists, q_[r]);
      for (float4& x : q_[r]) x.x *= scale, x.y *= scale, x.z *= scale, x.w *= scale;
      const KvRange seen = tile.Visible(grid, a.mask, row);
      seen_[r] = make_uint2(static_cast<uint32_t>(seen.begin), static_cast<uint32_t>(seen.end));
    }
  }

  // Takes every n-th key of [begin, end), of n groups. All lanes of a warp call it together.
  // Unsigned, because groups go beyond the last key, which may be 2^31 - 2.
  __device__ void Walk(uint32_t begin, uint32_t end) {
    if (begin >= end) return;
    const auto existing = [&](uint32_t key) { return key < end ? key : begin; };
    const auto entry_of = [&](uint32_t key) {
      return a_.pages.EntryOf(tile_.kv.batch, existing(key));
    };
    uint32_t key = begin + threadIdx.x / kLanes;
    int32_t entry = entry_of(key), next_entry = 0;  // the next one arrives while this key is used
#pragma unroll 1
    for (uint32_t first = begin; first < end;
         first += Shape::kGroups, key += Shape::kGroups, entry = next_entry) {
      const bool exists = key < end;
      Dims k, v;
      Load(a_.k, tile_.KvOffset(a_.k, a_.pages, entry, existing(key)), a_.d, exists, k);
      Load(a_.v, tile_.KvOffset(a_.v, a_.pages, entry, existing(key)), a_.dv, exists, v);
      next_entry = entry_of(key + Shape::kGroups);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float s = 0;
#pragma unroll
        for (int i = 0; i < kFours; ++i) s += Dot(q_[r][i], k[i]);
#pragma unroll
        for (int lanes = 1; lanes < kLanes; lanes *= 2) s += __shfl_xor_sync(0xFFFFFFFF, s, lanes);
        if (a_.softcap != 0) s = a_.softcap * 1.44269504088896341f * tanhf(s);
        if (!exists || key < seen_[r].x || key >= seen_[r].y) s = -INFINITY;
        const float factor = rows_[r].GrowLazily(s);
        const float p = rows_[r].Weight(s);
        rows_[r].sum += p;
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
          float4& o = o_[r][i];
          o.x = fmaf(o.x, factor, p * v[i].x), o.y = fmaf(o.y, factor, p * v[i].y);
          o.z = fmaf(o.z, factor, p * v[i].z), o.w = fmaf(o.w, factor, p * v[i].w);
        }
      }
    }
  }

  // Writes the group's part to the shared memory of its block.
  __device__ void WritePart(char* shared) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float* const to = SharedRow<Shape>(shared, static_cast<int>(threadIdx.x) / kLanes, r);
      if (Lane() == 0) {
        *reinterpret_cast<float2*>(to + Shape::kHeadDim) =
            make_float2(rows_[r].neg_max, rows_[r].sum);
      }
#pragma unroll
      for (int i = 0; i < kFours; ++i) *reinterpret_cast<float4*>(to + DimOf(i)) = o_[r][i];
    }
  }

 private:
  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  // The first of the lane's i-th four dims. Lanes of a group load 16 bytes side by side.
  static __device__ int DimOf(int i) { return (i * kLanes + Lane()) * 4; }
  static __device__ float Dot(const float4& a, const float4& b) {
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w)));
  }

  // The lane's dims of the row at `offset`; zeros beyond `dim`, and if the row does not exist.
  static __device__ void Load(const device::Rows& rows, int64_t offset, int dim, bool exists,
                              Dims& to) {
    const float* const from = static_cast<const float*>(rows.data) + offset;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const int first = DimOf(i);
      if (rows.whole_chunks) {
        to[i] = exists && first < dim ? *reinterpret_cast<const float4*>(from + first)
                                      : make_float4(0, 0, 0, 0);
      } else {
        const auto at = [&](int d) { return exists && first + d < dim ? from[first + d] : 0.0f; };
        to[i] = make_float4(at(0), at(1), at(2), at(3));
      }
    }
  }

  const device::Arguments& a_;
  const TileRows& tile_;
  uint2 seen_[kRows];
  Dims q_[kRows];
  Dims o_[kRows] = {};
  device::OnlineSoftmax rows_[kRows];
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    CudaCoreKernel(const __grid_constant__ device::Arguments a,
                   const __grid_constant__ SplitGrid grid,
                   const __grid_constant__ Workspace workspace) {
  extern __shared__ __align__(128) char shared[];
  const SplitPlace place = PlaceOf(grid, blockIdx.x);
  const TileRows tile = RowsOf(a, grid, place, Shape::kRows);
  const SplitKeys keys = tile.Keys(grid, a.mask), part = RangeOf(grid, keys, place.part);
  const BlockPart block = {tile, place.part, PartsOf(grid, keys)};
  if (!block.HasWork()) return;
  device::Counter counter = block.CounterOf(grid, workspace);
  if (threadIdx.x == 0 && block.parts > 1) counter.Read();
  LaneRows<Shape> rows(a, grid, tile);
  rows.Walk(part.begin, part.end);
  rows.WritePart(shared);
  __syncthreads();
  MergeBlock<Shape, float, Shape::kGroups>(a, grid, workspace, block, counter, shared);
}

template <int kDim>
cudaError_t LaunchCudaCores(const SplitCall& call) {
  using Shape = CudaCoreShape<kDim>;
  return device::Launch(CudaCoreKernel<Shape>, call.Record(Shape::kThreads, Shape::kSharedBytes, 0),
                        call.arguments, call.grid, call.workspace);
}

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_CUDA_CORES_CUH_
