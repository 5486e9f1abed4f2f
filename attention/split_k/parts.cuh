// Parts of a row's result, each with its own keys: how they are merged and stored. In a block, the
// parts are those of its warps, in shared memory; in the merge kernel, those of blocks.
#ifndef ATTENTION_SPLIT_K_PARTS_CUH_
#define ATTENTION_SPLIT_K_PARTS_CUH_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/convert.cuh"
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
// output_at(i): where its four numbers lie. A part that has seen no key counts nothing: its sum and
// its numbers are 0. So nothing depends on a part's state but factors, and loads run ahead.
template <typename StateAt, typename OutputAt>
__device__ Merged MergeParts(int count, const StateAt& state_at, const OutputAt& output_at) {
  Merged merged;
  float least = device::OnlineSoftmax::kNoKey;
#pragma unroll 4
  for (int i = 0; i < count; ++i) least = fminf(least, state_at(i).x);
  merged.softmax.neg_max = least;
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const float2 state = state_at(i);
    const float factor = device::OnlineSoftmax::Power(least - state.x);
    const float4 o = *output_at(i);
    merged.softmax.sum = fmaf(state.y, factor, merged.softmax.sum);
    merged.o.x = fmaf(o.x, factor, merged.o.x), merged.o.y = fmaf(o.y, factor, merged.o.y);
    merged.o.z = fmaf(o.z, factor, merged.o.z), merged.o.w = fmaf(o.w, factor, merged.o.w);
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

// Merges the kParts parts of a block's rows, which lie in shared memory as Shape says: writes O and
// LSE if the block has all keys, otherwise the block's part.
template <class Shape, typename T, int kParts, int kRows>
__device__ void MergeBlock(const device::Arguments& a, const SplitGrid& grid,
                           const Workspace& workspace, const device::QueryTile& tile,
                           const char* shared) {
  constexpr int kFours = Shape::kHeadDim / 4;
  const auto* const states = reinterpret_cast<const float2*>(shared + Shape::kStates);
  const auto* const outputs = reinterpret_cast<const float*>(shared + Shape::kOutputs);
  const int rows = static_cast<int>(tile.end - tile.begin);
  for (int i = static_cast<int>(threadIdx.x); i < rows * kFours; i += Shape::kThreads) {
    const int row = i / kFours, dim = i % kFours * 4;
    if (dim >= a.dv) continue;
    const Merged merged = MergeParts(
        kParts, [&](int part) { return states[part * kRows + row]; },
        [&](int part) {
          return reinterpret_cast<const float4*>(outputs +
                                                 (part * kRows + row) * Shape::kOutputRow + dim);
        });
    if (grid.parts.Value() == 1) {
      StoreRow<T>(a, tile, tile.begin + row, dim, merged);
      continue;
    }
    *reinterpret_cast<float4*>(workspace.Output(blockIdx.x, row) + dim) = merged.o;
    if (dim != 0) continue;
    *reinterpret_cast<float2*>(workspace.State(blockIdx.x, row)) =
        make_float2(merged.softmax.neg_max, merged.softmax.sum);
  }
}

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_PARTS_CUH_
