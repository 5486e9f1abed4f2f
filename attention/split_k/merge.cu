#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/split_k/call.h"
#include "attention/split_k/parts.cuh"
#include "attention/split_k/split.h"

namespace attnlab::split_k {
namespace {

constexpr int kMostThreads = 64;  // head dims to 256

// A block has one row, a thread four numbers of its O. Blocks are in the order of tiles, and in y in
// that of a tile's rows.
template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    MergeKernel(const __grid_constant__ device::Arguments a, const __grid_constant__ SplitGrid grid,
                const __grid_constant__ Workspace workspace) {
  const int row = static_cast<int>(blockIdx.y), dim = static_cast<int>(threadIdx.x) * 4;
  const uint32_t unit = grid.tiles.Divide(blockIdx.x);
  const uint32_t tile_of_unit = blockIdx.x - unit * grid.tiles.Value();
  const device::QueryTile tile = TileOf(a, grid, {unit, 0, tile_of_unit}, workspace.rows);
  if (tile.begin + row >= tile.end) return;
  const int parts = static_cast<int>(PartsOf(grid, tile.Tiles(a.mask, kPartKeys)));
  const int64_t first = int64_t{unit} * grid.parts.Value() * grid.tiles.Value() + tile_of_unit;
  const auto index_of = [&](int part) { return first + int64_t{part} * grid.tiles.Value(); };
  const Merged merged = MergeParts(
      parts,
      [&](int part) {
        return *reinterpret_cast<const float2*>(workspace.State(index_of(part), row));
      },
      [&](int part) {
        return reinterpret_cast<const float4*>(workspace.Output(index_of(part), row) + dim);
      });
  StoreRow<T>(a, tile, tile.begin + row, dim, merged);
}

template <typename T>
cudaError_t LaunchMergeOf(const SplitCall& call) {
  const int64_t most_rows = call.arguments.q_sequences.longest * call.grid.pack;
  const int64_t rows = std::min<int64_t>(call.workspace.rows, most_rows);
  const dim3 blocks(call.grid.units * call.grid.tiles.Value(), static_cast<uint32_t>(rows));
  return device::Launch(MergeKernel<T>, blocks, dim3(call.workspace.dim / 4), 0, call.stream,
                        call.arguments, call.grid, call.workspace);
}

}  // namespace

cudaError_t LaunchMerge(const SplitCall& call) {
  switch (call.element) {
    case device::Element::kFloat16:
      return LaunchMergeOf<__half>(call);
    case device::Element::kBFloat16:
      return LaunchMergeOf<__nv_bfloat16>(call);
    case device::Element::kFloat32:
      return LaunchMergeOf<float>(call);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attnlab::split_k
