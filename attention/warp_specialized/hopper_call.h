// A call of the Hopper kernel: what the host passes to the device.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_

#include <cuda.h>

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/divisor.h"
#include "attention/device/element.h"
#include "attention/device/tile_order.h"
#include "attention/warp_specialized/hopper_shape.h"
#include "cuda_runtime.h"

namespace attnlab::warp_specialized {

struct HopperArguments {
  CUtensorMap q, k, v;
  device::Arguments a;
  device::Grid grid;     // the order of the query tiles
  device::Divisor pack;  // grid.pack
  int box_keys = 0;      // Options
  // A device::Counter. Null: blocks take tiles in a fixed order.
  unsigned long long* taken = nullptr;
  // Whether K and V may have rows beyond the end of a sequence: those of other sequences, padding, or
  // the rest of a last page.
  bool rows_beyond = false;
};

struct HopperCall {
  HopperArguments arguments;
  device::Element element = device::Element::kBFloat16;  // not kFloat32
  int blocks = 0;
  cudaStream_t stream = nullptr;
};

template <typename Shape>
cudaError_t LaunchHopper(const HopperCall& call);

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_
