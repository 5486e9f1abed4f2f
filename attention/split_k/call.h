// A launch of the split-K kernels: what the host hands to the sources that are compiled for the GPU.
//
// Plain C++ without Abseil, because device code includes it.
#ifndef ATTENTION_SPLIT_K_CALL_H_
#define ATTENTION_SPLIT_K_CALL_H_

#include <cstdint>

#include "attention/cuda/launch.h"
#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/device/host_device.h"
#include "attention/split_k/split.h"
#include "cuda_runtime.h"

namespace attnlab::split_k {

// Factors of K and V per sequence and KV head; null: 1. Strides are in elements.
struct Scales {
  const float *k = nullptr, *v = nullptr;
  int64_t k_batch_stride = 0, k_head_stride = 0, v_batch_stride = 0, v_head_stride = 0;

  ATTNLAB_HOST_DEVICE float OfK(int64_t sequence, int64_t head) const {
    return k == nullptr ? 1 : k[sequence * k_batch_stride + head * k_head_stride];
  }
  ATTNLAB_HOST_DEVICE float OfV(int64_t sequence, int64_t head) const {
    return v == nullptr ? 1 : v[sequence * v_batch_stride + head * v_head_stride];
  }
};

struct SplitCall {
  device::Arguments arguments;
  bool fp8_cache = false;  // K and V are fp8_e4m3, with
  Scales scales;
  SplitGrid grid;
  Workspace workspace;
  device::Element element = device::Element::kBFloat16;
  cudaStream_t stream = nullptr;

  // Of a kernel with so many threads and bytes of shared memory per block, and more in a cluster.
  device::LaunchRecord Record(int threads, int shared_bytes, int exchange_bytes) const {
    device::LaunchRecord record;
    record.grid = dim3(BlocksOf(grid));
    record.block = dim3(static_cast<uint32_t>(threads));
    record.shared_bytes =
        static_cast<size_t>(shared_bytes + (grid.cluster_shift > 0 ? exchange_bytes : 0));
    record.stream = stream;
    record.cluster = 1u << grid.cluster_shift;
    return record;
  }
};

// The parts of all tiles, 16-bit elements on tensor cores or fp32 on CUDA cores. kDim: 64, 128 or
// 256, at least d and dv. They write O and LSE.
template <int kDim>
cudaError_t LaunchTensorCores(const SplitCall& call);
template <int kDim>
cudaError_t LaunchCudaCores(const SplitCall& call);

}  // namespace attnlab::split_k

#endif  // ATTENTION_SPLIT_K_CALL_H_
