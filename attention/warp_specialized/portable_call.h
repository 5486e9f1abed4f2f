// A call of the portable kernel: what the host passes to the device.
#ifndef ATTENTION_WARP_SPECIALIZED_PORTABLE_CALL_H_
#define ATTENTION_WARP_SPECIALIZED_PORTABLE_CALL_H_

#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/device/tile_order.h"
#include "attention/warp_specialized/portable_shape.h"
#include "cuda_runtime.h"

namespace attnlab::warp_specialized {

struct PortableCall {
  device::Arguments arguments;
  device::Grid grid;  // of at least one block
  PortableBlock block;
  device::Element element = device::Element::kBFloat16;
  cudaStream_t stream = nullptr;
};

// fp16 and bf16. Code for bf16 is for 8.0 or later (attention/cuda/code_capability.h).
template <class Shape>
cudaError_t LaunchPortable(const PortableCall& call);

// fp32.
template <int kDim>
cudaError_t LaunchPortableFp32(const PortableCall& call);

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_PORTABLE_CALL_H_
