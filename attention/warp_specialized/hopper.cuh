// The __global__ function of the Hopper kernel, for the .cu files that instantiate it, one per head
// dim.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "attention/cuda/launch.h"
#include "attention/device/early_start.cuh"
#include "attention/device/fragments.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_consumer.cuh"
#include "attention/warp_specialized/hopper_tile.cuh"
#include "attention/warp_specialized/hopper_transpose.cuh"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

template <typename T, typename Shape, bool kCaps>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    HopperKernel(const __grid_constant__ HopperArguments h) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<HopperShared<Shape>*>(memory);
  static_assert(sizeof(shared) == Shape::kSharedBytes);
  constexpr int kProducers = 128 * Shape::kConsumers;  // its first thread
  // What is launched early behind this kernel, such as what adds to its O, may take each multiprocessor as soon
  // as the block there has ended. Not if this one may itself have begun before the one ahead has ended.
  const bool began_early = Shape::kPretransposed || (Shape::kAdds && h.adds);
  if (!began_early) device::LetNextKernelStart();
  if (threadIdx.x == 0) shared.Init(Producers<Shape>(h));
  __syncthreads();
  if constexpr (Shape::kCluster > 1) device::ClusterArrive(), device::ClusterWait();
  if (threadIdx.x < kProducers) {
    device::TakeRegisters<Shape::kConsumerRegisters>();
    Consumer<T, Shape, kCaps>(h, shared).Consume();
  } else {
    device::GiveRegisters<Shape::kProducerRegisters>();
    // Uniform, or ptxas takes the warps for divergent and spills registers of the consumers.
    const int warp = device::Uniform(static_cast<int>(threadIdx.x) / 32) - kProducers / 32;
    if (warp < Producers<Shape>(h)) Produce(h, shared, warp);
    if constexpr (Shape::kTransposes) {
      if (warp % 2 == 1) Transpose(h, shared, warp / 2);
    }
    if (warp == 2) {
      Schedule<Shape>(h, shared);
    }
  }
  // Who waits for this kernel relies on the ones ahead of it having ended.
  if (began_early) device::WaitForKernelAhead();
  // The other block still copies to this one, and tells it what it has read: that must have come.
  if constexpr (Shape::kCluster > 1) device::ClusterArriveAfterAll(), device::ClusterWait();
}

template <typename T, typename Shape>
cudaError_t LaunchElement(const HopperCall& call) {
  if constexpr (Shape::kPretransposed) {
    if (const cudaError_t error = Pretranspose(call); error != cudaSuccess) return error;
  }
  device::LaunchRecord record;
  record.grid = dim3(call.blocks), record.block = dim3(Shape::kThreads);
  record.shared_bytes = Shape::kSharedBytes, record.stream = call.stream;
  // What the kernel ahead writes is V, or is needed at a query tile's end. Pretranspose() is not launched early
  // itself, so all else has ended that Q, K and the workspace depend on.
  record.early = call.early || Shape::kPretransposed;
  if constexpr (Shape::kPairs) {
    if (call.pairs) {
      record.cluster = 2, record.shared_bytes = PairOf<Shape>::kSharedBytes;
      return device::Launch(HopperKernel<T, PairOf<Shape>, false>, record, call.arguments);
    }
  }
  if constexpr (Shape::kHasTmaStores) {
    if (call.stores_by_tma) {
      return device::Launch(HopperKernel<T, StoredByTma<Shape>, false>, record, call.arguments);
    }
  }
  if constexpr (Shape::kHasSoftcap) {
    if (call.arguments.a.softcap != 0) {
      return device::Launch(HopperKernel<T, Shape, true>, record, call.arguments);
    }
  }
  return device::Launch(HopperKernel<T, Shape, false>, record, call.arguments);
}

template <typename Shape>
cudaError_t LaunchHopper(const HopperCall& call) {
  if constexpr (Shape::kFp8) {
    return LaunchElement<__nv_fp8_e4m3, Shape>(call);
  } else {
    switch (call.element) {
      case device::Element::kFloat16:
        return LaunchElement<__half, Shape>(call);
      case device::Element::kBFloat16:
        return LaunchElement<__nv_bfloat16, Shape>(call);
      case device::Element::kFloat32:
        break;
    }
    return cudaErrorInvalidValue;
  }
}

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_CUH_
