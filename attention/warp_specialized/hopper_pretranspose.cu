// V of fp8, transposed by a kernel of its own: once, where the Hopper kernel does it once per query tile.
//
// Of each head and tile of 128 keys it leaves dv rows of 128 bytes, with keys and columns in the order of
// hopper_transpose.cuh. Keys beyond the last one are zeros.
#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/early_start.cuh"
#include "attention/device/mma.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_transpose.cuh"

namespace attnlab::warp_specialized {
namespace {

// What a block has: a tile of keys and 128 columns.
struct TransposeShape {
  static constexpr int kKeys = 128, kDimV = 128, kTransposers = 8;  // warps
  static constexpr int kThreads = 32 * kTransposers, kChunks = 8;   // of 16 bytes in a row
  static constexpr int kSharedBytes = 2 * kKeys * kDimV;
};

// Of a row's chunk in shared memory: the 128-byte swizzle.
__device__ uint4* ChunkAt(char* tile, int row, int chunk) {
  return reinterpret_cast<uint4*>(tile + row * 128 + (chunk ^ row % 8) * 16);
}

__global__ void __launch_bounds__(TransposeShape::kThreads)
    TransposeKernel(device::Rows v, int keys, int heads, int key_tiles, int dv, char* transposed) {
  using Shape = TransposeShape;
  extern __shared__ __align__(1024) char from[];
  char* const to = from + Shape::kKeys * 128;
  device::LetNextKernelStart();
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x),
            column = static_cast<int>(blockIdx.y) * Shape::kDimV;
  const int unit = block / key_tiles, first_key = (block - unit * key_tiles) * Shape::kKeys;
  const int row = thread / Shape::kChunks, chunk = thread % Shape::kChunks;
  constexpr int kRows = Shape::kThreads / Shape::kChunks;  // at a time
  const char* const there = static_cast<const char*>(v.data) +
                            v.Offset(unit / heads, first_key, unit % heads) + column + chunk * 16;
#pragma unroll
  for (int i = row; i < row + Shape::kKeys; i += kRows) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (first_key + i < keys && column + chunk * 16 < dv) {
      x = *reinterpret_cast<const uint4*>(there + i * v.token_stride);
    }
    *ChunkAt(from, i, chunk) = x;
  }
  __syncthreads();
  const TransposeLane lane(thread % 32, thread / 32);
  TransposeBlock<Shape>(device::SharedAddress(from) + lane.from,
                        device::SharedAddress(to) + lane.to, lane.first, lane.second);
  __syncthreads();
  char* const here = transposed + (int64_t{block} * dv + column) * Shape::kKeys + chunk * 16;
#pragma unroll
  for (int i = row; i < row + Shape::kDimV; i += kRows) {
    if (column + i < dv) {
      *reinterpret_cast<uint4*>(here + i * Shape::kKeys) = *ChunkAt(to, i, chunk);
    }
  }
}

}  // namespace

// Not launched early: what is launched early behind it relies on the kernels ahead having ended.
cudaError_t Pretranspose(const HopperCall& call) {
  const HopperArguments& h = call.arguments;
  const auto blocks = static_cast<unsigned>(h.a.b * call.kv_heads * h.key_tiles);
  return device::Launch(
      TransposeKernel, dim3(blocks, (h.a.dv + TransposeShape::kDimV - 1) / TransposeShape::kDimV),
      dim3(TransposeShape::kThreads), TransposeShape::kSharedBytes, call.stream, h.a.v, call.keys,
      call.kv_heads, h.key_tiles, h.a.dv, static_cast<char*>(call.transposed));
}

}  // namespace attnlab::warp_specialized
