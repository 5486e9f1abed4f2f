#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/split_k/call.h"
#include "attention/split_k/parts.cuh"
#include "attention/split_k/split.h"

namespace attnlab::split_k {
namespace {

constexpr int kThreads = 128;

// A thread has four numbers of O of a row. Rows of a tile follow each other, tiles as in the grid.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    MergeKernel(const __grid_constant__ device::Arguments a, const __grid_constant__ SplitGrid grid,
                const __grid_constant__ Workspace workspace) {
  const int fours = workspace.dim / 4;
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int dim = static_cast<int>(item % fours) * 4;
  const int row = static_cast<int>(item / fours % workspace.rows);
  const int64_t index = item / fours / workspace.rows;
  if (index >= int64_t{grid.units} * grid.tiles.Value()) return;
  const uint32_t unit = grid.tiles.Divide(static_cast<uint32_t>(index));
  const uint32_t tile_of_unit = static_cast<uint32_t>(index) - unit * grid.tiles.Value();
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
  const int64_t items = int64_t{call.grid.units} * call.grid.tiles.Value() * call.workspace.rows *
                        (call.workspace.dim / 4);
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  return device::Launch(MergeKernel<T>, dim3(static_cast<uint32_t>(blocks)), dim3(kThreads), 0,
                        call.stream, call.arguments, call.grid, call.workspace);
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
