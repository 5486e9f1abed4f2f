// Parts of a row's result, each with its own keys: how they are merged and stored. The parts of a block
// are those of its warps or groups of lanes, in shared memory. The parts of a tile are those of its
// blocks, in the workspace; if they are a cluster, see exchange.cuh.
#ifndef ATTENTION_SPLIT_K_PARTS_CUH_
#define ATTENTION_SPLIT_K_PARTS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
#include "attention/device/counter.cuh"
#include "attention/device/online_softmax.h"
#include "attention/split_k/split.h"
#include "attention/split_k/tile_rows.h"

namespace attnlab::split_k {

// The state of two parts of a row together. Rounded as written, so that the bits are the same wherever it
// is done.
struct AddedState {
  device::OnlineSoftmax softmax;
  float first, second;  // factors

  __device__ AddedState(const device::OnlineSoftmax& a, const device::OnlineSoftmax& b) {
    softmax.neg_max = fminf(a.neg_max, b.neg_max);
    first = device::OnlineSoftmax::Power(softmax.neg_max - a.neg_max);
    second = device::OnlineSoftmax::Power(softmax.neg_max - b.neg_max);
    softmax.sum = Add(a.sum, b.sum);
  }
  // A number of O, not divided yet, of both.
  __device__ float Add(float a, float b) const { return fmaf(a, first, __fmul_rn(b, second)); }
};

// A row's state, and four numbers of its O.
struct Merged {
  device::OnlineSoftmax softmax;
  float4 o = {0, 0, 0, 0};

  // What Add() makes of it, if there is nothing yet: -0 becomes 0.
  __device__ Merged AddedToNone() const {
    return {softmax, {__fadd_rn(o.x, 0), __fadd_rn(o.y, 0), __fadd_rn(o.z, 0), __fadd_rn(o.w, 0)}};
  }

  // Adds a part. One that has seen no key changes nothing.
  __device__ void Add(const Merged& part) {
    const AddedState both(softmax, part.softmax);
    softmax = both.softmax;
    o = {both.Add(o.x, part.o.x), both.Add(o.y, part.o.y), both.Add(o.z, part.o.z),
         both.Add(o.w, part.o.w)};
  }
};

// Merges parts 0 .. count - 1: part_at(i) is part i. kAhead parts are loaded at a time, because a load
// from another block's part takes long. It merges four and four, one after the other, then these, as it is
// done in registers and in a cluster, so that the bits do not depend on who merges.
template <int kAhead, typename PartAt>
__device__ Merged MergeParts(int count, const PartAt& part_at) {
  Merged merged;
#pragma unroll 1
  for (int first = 0; first < count; first += kAhead) {
    Merged parts[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < count) parts[i] = part_at(first + i);
    }
#pragma unroll
    for (int i = 0; i < kAhead; i += 4) {
      Merged four = parts[i].AddedToNone();
#pragma unroll
      for (int j = 1; j < 4; ++j) four.Add(parts[i + j]);
      if (first + i == 0) {
        merged = four;
      } else {
        merged.Add(four);
      }
    }
  }
  return merged;
}

// The next lane's part. All lanes of the warp call it.
__device__ inline Merged NextLanes(const Merged& part) {
  const auto next = [](float x) { return __shfl_down_sync(0xFFFFFFFF, x, 1); };
  return {{next(part.softmax.neg_max), next(part.softmax.sum)},
          {next(part.o.x), next(part.o.y), next(part.o.z), next(part.o.w)}};
}

// The part of which a row's state is at `state`: minus the running maximum, and the sum.
__device__ inline Merged PartAt(const float* state, const float* o) {
  const float2 x = *reinterpret_cast<const float2*>(state);
  return {{x.x, x.y}, *reinterpret_cast<const float4*>(o)};
}

// What a block knows of its part.
struct BlockPart {
  TileRows tile;
  uint32_t part = 0, parts = 0;  // parts: of the tile, that have keys

  __device__ bool HasKeys() const { return part < parts; }
  // Whether the block has something to do. Without any key, the first one writes O.
  __device__ bool HasWork() const { return tile.begin < tile.end && (HasKeys() || part == 0); }
  // Counts the tile's finished parts.
  __device__ device::Counter CounterOf(const SplitGrid& grid, const Workspace& workspace) const {
    return {workspace.counters + grid.parts.Divide(blockIdx.x), parts};
  }
};

// Stores four numbers of O of a row, divided and rounded, and its LSE where `dim` is 0.
template <typename T>
__device__ void StoreRow(const device::Arguments& a, const SplitGrid& grid, const TileRows& tile,
                         int row, int dim, const Merged& merged) {
  const float f = merged.softmax.Inverse();
  const float o[4] = {merged.o.x * f, merged.o.y * f, merged.o.z * f, merged.o.w * f};
  T* const to = static_cast<T*>(a.o.data) + tile.Offset(grid, a.o, tile.begin + row) + dim;
  if (a.o.whole_chunks && dim + 4 <= a.dv) {
    device::StoreFour(to, make_float4(o[0], o[1], o[2], o[3]));
  } else {
    for (int i = 0; i < 4 && dim + i < a.dv; ++i) to[i] = device::FromFloat<T>(o[i]);
  }
  if (dim == 0 && a.lse.data != nullptr) {
    static_cast<float*>(a.lse.data)[tile.Offset(grid, a.lse, tile.begin + row)] =
        merged.softmax.Lse();
  }
}

// In shared memory, a part has kOutputRow floats per row: O, then the row's state.
template <class Shape>
__device__ float* SharedRow(char* shared, int part, int row) {
  return reinterpret_cast<float*>(shared + part * Shape::kPartStride) + row * Shape::kOutputRow;
}

// Merges a row's kParts parts in shared memory: numbers dim to dim + 3 of O.
template <class Shape, int kParts>
__device__ Merged MergeShared(char* shared, int row, int dim) {
  constexpr int kAhead = kParts < 8 ? 4 : 8;
  return MergeParts<kAhead>(kParts, [&](int part) {
    const float* const at = SharedRow<Shape>(shared, part, row);
    return PartAt(at + Shape::kHeadDim, at + dim);
  });
}

// Merges the kParts parts of a block's rows. If the block has all keys, it writes O and LSE. Otherwise
// it leaves its part in the workspace, and the last block of a tile merges all, in their order,
// whichever block it is. All threads call it, after a barrier.
template <class Shape, typename T, int kParts>
__device__ void MergeBlock(const device::Arguments& a, const SplitGrid& grid,
                           const Workspace& workspace, const BlockPart& block,
                           device::Counter& counter, char* shared) {
  constexpr int kFours = Shape::kHeadDim / 4;
  const int items = block.tile.Count() * kFours;
  const bool whole = block.parts <= 1;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < items; i += Shape::kThreads) {
    const int row = i / kFours, dim = i % kFours * 4;
    if (dim >= a.dv) continue;
    const Merged merged = MergeShared<Shape, kParts>(shared, row, dim);
    if (whole) {
      StoreRow<T>(a, grid, block.tile, row, dim, merged);
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
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < items; i += Shape::kThreads) {
    const int row = i / kFours, dim = i % kFours * 4;
    if (dim >= a.dv) continue;
    const Merged merged = MergeParts<8>(static_cast<int>(block.parts), [&](int part) {
      const int64_t index = int64_t{blockIdx.x} - block.part + part;
      return PartAt(workspace.State(index, row), workspace.Output(index, row) + dim);
    });
    StoreRow<T>(a, grid, block.tile, row, dim, merged);
  }
}

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_PARTS_CUH_
