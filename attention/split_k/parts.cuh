// Parts of a row's result, each with its own keys: how they are merged and stored. The parts of a block
// are those of its warps, in shared memory. The parts of a tile are those of its blocks, in the
// workspace.
#ifndef ATTENTION_SPLIT_K_PARTS_CUH_
#define ATTENTION_SPLIT_K_PARTS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/counter.cuh"
#include "attention/device/online_softmax.h"
#include "attention/device/query_tile.h"
#include "attention/split_k/split.h"

namespace attnlab::split_k {

// A row's state, and four numbers of its O, not divided yet.
struct Merged {
  device::OnlineSoftmax softmax;
  float4 o = {0, 0, 0, 0};
};

// Merges parts 0 .. count - 1, always in this order. state_at(i): a part's minus maximum and sum.
// output_at(i): its four numbers. A part that has seen no key has a sum and numbers of 0. kAhead: how
// many parts are loaded at a time, because a load from another block's part takes long.
template <int kAhead, typename StateAt, typename OutputAt>
__device__ Merged MergeParts(int count, const StateAt& state_at, const OutputAt& output_at) {
  Merged merged;
#pragma unroll 1
  for (int first = 0; first < count; first += kAhead) {
    float2 states[kAhead];
    float4 outputs[kAhead];
    float least = merged.softmax.neg_max;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const bool exists = first + i < count;
      states[i] = exists ? state_at(first + i) : make_float2(device::OnlineSoftmax::kNoKey, 0);
      outputs[i] = exists ? output_at(first + i) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) least = fminf(least, states[i].x);
    float4& o = merged.o;
    const float before = merged.softmax.MoveTo(least);
    o.x *= before, o.y *= before, o.z *= before, o.w *= before;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float factor = device::OnlineSoftmax::Power(least - states[i].x);
      merged.softmax.sum = fmaf(states[i].y, factor, merged.softmax.sum);
      o.x = fmaf(outputs[i].x, factor, o.x), o.y = fmaf(outputs[i].y, factor, o.y);
      o.z = fmaf(outputs[i].z, factor, o.z), o.w = fmaf(outputs[i].w, factor, o.w);
    }
  }
  return merged;
}

// Stores four numbers of O of a row, divided and rounded, and its LSE where `dim` is 0.
template <typename T>
__device__ void StoreRow(const device::Arguments& a, const device::QueryTile& tile, int64_t row,
                         int dim, const Merged& merged) {
  const float f = merged.softmax.Inverse();
  const float o[4] = {merged.o.x * f, merged.o.y * f, merged.o.z * f, merged.o.w * f};
  T* const to = static_cast<T*>(a.o.data) + tile.Offset(a.o, row) + dim;
  if (a.o.whole_chunks && dim + 4 <= a.dv) {
    device::StoreFour(to, make_float4(o[0], o[1], o[2], o[3]));
  } else {
    for (int i = 0; i < 4 && dim + i < a.dv; ++i) to[i] = device::FromFloat<T>(o[i]);
  }
  if (dim == 0 && a.lse.data != nullptr) {
    static_cast<float*>(a.lse.data)[tile.Offset(a.lse, row)] = merged.softmax.Lse();
  }
}

// The query tile of a place in the grid.
__device__ inline device::QueryTile TileOf(const device::Arguments& a, const SplitGrid& grid,
                                           const SplitPlace& place, int rows) {
  const uint32_t sequence = grid.heads.Divide(place.unit);
  const uint32_t head = place.unit - sequence * grid.heads.Value();
  return QueryTileOf(a, sequence, static_cast<int32_t>(head), grid.pack, place.tile, rows);
}

// What a block knows of its part.
struct BlockPart {
  device::QueryTile tile;
  SplitPlace place;
  uint32_t parts = 0;  // of the tile, that have keys

  // Counts the tile's finished parts.
  __device__ device::Counter CounterOf(const SplitGrid& grid, const Workspace& workspace) const {
    return {workspace.counters + int64_t{place.unit} * grid.tiles.Value() + place.tile, parts};
  }
};

// Merges the kParts parts of a block's rows, which lie in shared memory as Shape says. If the block
// has all keys, it writes O and LSE. Otherwise it writes its part, and the last block of a tile merges
// all. Parts are merged in their order, whichever block is last. All threads call it.
template <class Shape, typename T, int kParts, int kRows>
__device__ void MergeBlock(const device::Arguments& a, const SplitGrid& grid,
                           const Workspace& workspace, const BlockPart& block,
                           device::Counter& counter, const char* shared) {
  constexpr int kFours = Shape::kHeadDim / 4, kAhead = kParts < 8 ? kParts : 8;
  const device::QueryTile& tile = block.tile;
  const auto* const states = reinterpret_cast<const float2*>(shared + Shape::kStates);
  const auto* const outputs = reinterpret_cast<const float*>(shared + Shape::kOutputs);
  const int items = static_cast<int>(tile.end - tile.begin) * kFours;
  const bool whole = block.parts <= 1;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < items; i += Shape::kThreads) {
    const int row = i / kFours, dim = i % kFours * 4;
    if (dim >= a.dv) continue;
    const Merged merged = MergeParts<kAhead>(
        kParts, [&](int part) { return states[part * kRows + row]; },
        [&](int part) {
          return *reinterpret_cast<const float4*>(outputs +
                                                  (part * kRows + row) * Shape::kOutputRow + dim);
        });
    if (whole) {
      StoreRow<T>(a, tile, tile.begin + row, dim, merged);
      continue;
    }
    *reinterpret_cast<float4*>(workspace.Output(blockIdx.x, row) + dim) = merged.o;
    if (dim != 0) continue;
    *reinterpret_cast<float2*>(workspace.State(blockIdx.x, row)) =
        make_float2(merged.softmax.neg_max, merged.softmax.sum);
  }
  if (whole) return;
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    __threadfence();  // after the barrier: of all threads' stores
    counter.Begin();
    last = counter.Take() + 1 == block.parts;
    __threadfence();
  }
  if (!__syncthreads_or(last)) return;
  const int64_t first = IndexOf(grid, {block.place.unit, 0, block.place.tile});
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < items; i += Shape::kThreads) {
    const int row = i / kFours, dim = i % kFours * 4;
    if (dim >= a.dv) continue;
    const auto index_of = [&](int part) { return first + int64_t{part} * grid.tiles.Value(); };
    const Merged merged = MergeParts<8>(
        static_cast<int>(block.parts),
        [&](int part) {
          return __ldcg(reinterpret_cast<const float2*>(workspace.State(index_of(part), row)));
        },
        [&](int part) {
          return __ldcg(
              reinterpret_cast<const float4*>(workspace.Output(index_of(part), row) + dim));
        });
    StoreRow<T>(a, tile, tile.begin + row, dim, merged);
  }
}

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_PARTS_CUH_
