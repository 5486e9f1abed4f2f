// The portable kernel for fp32, on CUDA cores. Producers and consumers share their work as in
// portable_tile.cuh; what consumers compute is in device/cuda_core_rows.cuh. The ring has two
// stages, one for K and one for V, because K is transposed and V is not.
#ifndef ATTENTION_WARP_SPECIALIZED_PORTABLE_FP32_CUH_
#define ATTENTION_WARP_SPECIALIZED_PORTABLE_FP32_CUH_

#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/arguments.h"
#include "attention/device/cuda_core_products.cuh"
#include "attention/device/cuda_core_queries.cuh"
#include "attention/device/cuda_core_rows.cuh"
#include "attention/device/float_tile_copy.cuh"
#include "attention/device/fragments.cuh"
#include "attention/device/query_tile.h"
#include "attention/device/tile_order.h"
#include "attention/device/warp_barriers.cuh"
#include "attention/warp_specialized/portable_call.h"
#include "attention/warp_specialized/portable_ring.cuh"
#include "attention/warp_specialized/portable_shape.h"

namespace attnlab::warp_specialized {

// A producer warp: copies every n-th item, if there are n producers, from item `loader` on.
template <class Shape>
class Fp32Producer {
  // Before 8.0, a tile passes through this many registers of 16 bytes. A producer has them.
  static constexpr int kStaged = 16;
  template <class Layout>
  using Copy =
      device::FloatTileCopy<float, Shape::kKeys, Shape::kDim, Layout, /*kThreads=*/32, kStaged>;

 public:
  __device__ void Produce(const device::Arguments& a, const PortableBlock& block, float* shared,
                          const PortableRing& ring, int items, int loader) const {
    const device::QueryTile& tile =
        *reinterpret_cast<const device::QueryTile*>(shared + Shape::kQueryTile);
    const int first = device::TilesOfWarps<Shape>(shared)[Shape::kRowWarps].begin;
    int next = loader;
    for (PortableRing::Place at; at.item() < items; at.Advance(ring)) {
      if (at.item() != next) continue;
      next += block.loaders;
      const int64_t key = (first + int64_t{at.item() / 2}) * Shape::kKeys;
      const int left = static_cast<int>(tile.kv.length - key);
      const bool is_v = at.item() % 2 != 0;
      const float* const from = device::Pointers<Shape, float>(shared)[is_v];
      ring.WaitEmpty(at);
      const bool asynchronous =
          is_v ? CopyTo<Copy<device::RowMajor<Shape::kVStride>>>(
                     shared + Shape::kV, a.v, from + key * a.v.token_stride, left, a.dv)
               : CopyTo<Copy<device::Transposed<Shape::kKStride>>>(
                     shared + Shape::kK, a.k, from + key * a.k.token_stride, left, a.d);
      ring.Fill(at, asynchronous);
    }
  }

 private:
  // Returns whether the copy is still under way.
  template <class Copy>
  static __device__ bool CopyTo(float* to, const device::Rows& rows, const float* from, int count,
                                int columns) {
    Copy copy;
    copy.Begin(to, rows, from, count, columns);
    if (Copy::kAsync && rows.whole_chunks) return true;
    copy.Finish(to, rows, from, count, columns);
    return false;
  }
};

// A thread of a consumer warp.
template <class Shape>
class Fp32Consumer : device::CudaCoreRows<Shape, float> {
  using Base = device::CudaCoreRows<Shape, float>;
  static_assert(!Base::kShares, "at most a pair of warps shares rows");

 public:
  using Base::Base;

  __device__ void Consume(const PortableRing& ring, int items) {
    const device::QueryCopy<Shape, float> copy_q(this->a_, this->tile_);
    device::FindVisible<Shape>(this->a_, this->tile_, this->shared_);
    copy_q.Finish(this->a_, this->tile_, this->shared_);
    WaitForConsumers();
    const int first = device::TilesOfWarps<Shape>(this->shared_)[Shape::kRowWarps].begin;
#pragma unroll 1
    for (PortableRing::Place at; at.item() < items;) {
      const int tile = first + at.item() / 2;
      const device::WarpTiles<Shape> seen =
          device::TilesOfWarps<Shape>(this->shared_)[device::ThreadPlace<Shape>().warp_row];
      if (!seen.Has(tile)) {
        Skip(ring, at);
        Skip(ring, at);
        continue;
      }
      typename Base::Scores s;
      float max[Base::kRows];
      ring.WaitFull(at);
      this->Multiply(s);
      Release(ring, at);
      if (this->a_.softcap != 0) this->Cap(s);
      if (!seen.IsFull(tile)) this->Hide(s, tile);
      this->FindMaxima(s, max);
      this->Weigh(s, max);
      WaitForSharing();  // P and the factors for O are there
      ring.WaitFull(at);
      const device::ThreadPlace<Shape> place;
      device::AddOutputs<Shape>(
          this->shared_ + Shape::kP + place.row, this->shared_ + Shape::kV + place.dim,
          this->shared_ + Shape::kFactors + place.row, seen.KeysOf(tile), this->o_, [] {});
      Release(ring, at);
      WaitForSharing();  // nobody needs them any more
    }
  }

  // Writes O and LSE. All threads of the block call it at the end, and consumers do the work. A barrier
  // of the consumers would do. But racecheck notices it late: now and then it reports the first read
  // after it. And synccheck ends kernels whose warps come to __syncthreads() in different places.
  __device__ void Write(bool consumes) {
    __syncthreads();
    if (consumes) this->CollectSoftmax([] {});  // nothing to wait for, because nobody shares rows
    __syncthreads();
    if (consumes) device::FinishSoftmax<Shape>(this->a_, this->tile_, this->shared_);
    __syncthreads();
    if (consumes) {
      device::WriteOutputs<Shape, float>(this->a_, this->tile_, this->shared_, this->o_);
    }
  }

 private:
  static __device__ void WaitForConsumers() { PortableRing::SyncConsumers(Shape::kThreads / 32); }

  // Waits for the threads that have the same rows.
  static __device__ void WaitForSharing() {
    if constexpr (Shape::kPairs) {
      device::WaitForPairOfWarps();
    } else {
      __syncwarp();
    }
  }

  static __device__ void Release(const PortableRing& ring, PortableRing::Place& at) {
    ring.Release(at);
    at.Advance(ring);
  }
  static __device__ void Skip(const PortableRing& ring, PortableRing::Place& at) {
    ring.WaitFull(at);  // a release counts for the round that it comes in
    Release(ring, at);
  }
};

// Blocks of 12 warps together leave 168 registers per thread.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads + 32 * kMostFp32Loaders,
                                  12 * 32 / (Shape::kThreads + 32 * kMostFp32Loaders))
    PortableFp32Kernel(const __grid_constant__ device::Arguments a,
                       const __grid_constant__ device::Grid grid,
                       const __grid_constant__ PortableBlock block) {
  extern __shared__ float4 memory[];
  float* const shared = reinterpret_cast<float*>(memory);
  const device::QueryTile tile = TileOfBlock(a, grid, blockIdx.x, Shape::kRows);
  if (tile.begin >= tile.end) return;
  const int items = 2 * static_cast<int>(tile.Tiles(a.mask, Shape::kKeys).Count(Shape::kKeys));
  const PortableRing ring(reinterpret_cast<char*>(shared) + Shape::kSharedBytes, kFp32Stages, items,
                          Shape::kThreads / 32);
  device::FindTiles<Shape>(a, tile, shared);
  if (threadIdx.x == 0) {
    *reinterpret_cast<device::QueryTile*>(shared + Shape::kQueryTile) = tile;
    device::Pointers<Shape, float>(shared)[0] =
        static_cast<const float*>(a.k.data) + tile.KvOffset(a.k);
    device::Pointers<Shape, float>(shared)[1] =
        static_cast<const float*>(a.v.data) + tile.KvOffset(a.v);
    ring.Init();
  }
  __syncthreads();
  Fp32Consumer<Shape> consumer(a, shared);
  const bool consumes = threadIdx.x < Shape::kThreads;
  if (consumes) {
    consumer.Consume(ring, items);
  } else {
    const int warp = device::Uniform(static_cast<int>(threadIdx.x) / 32);
    Fp32Producer<Shape>().Produce(a, block, shared, ring, items, warp - block.consumers);
  }
  consumer.Write(consumes);
}

template <int kDim>
cudaError_t LaunchPortableFp32(const PortableCall& call) {
  using Shape = PortableFp32Shape<kDim>;
  return device::Launch(PortableFp32Kernel<Shape>, dim3(BlocksOf(call.grid)),
                        dim3(call.block.Threads()), Fp32SharedBytes<Shape>(call.block), call.stream,
                        call.arguments, call.grid, call.block);
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_PORTABLE_FP32_CUH_
