// A call of the Hopper kernel: what the host passes to the device.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_

#include <cuda.h>

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/divisor.h"
#include "attention/device/element.h"
#include "attention/warp_specialized/hopper_shape.h"
#include "cuda_runtime.h"

namespace attnlab::warp_specialized {

struct HopperArguments {
  CUtensorMap q, k, v;
  device::Arguments a;
  uint32_t tiles = 0;     // query tiles of all units
  uint32_t run = 1;       // a block takes `run` tiles in a row: 1, or pairs
  device::Divisor unit;   // query tiles per unit; a unit is a (sequence, head) pair
  device::Divisor heads;  // units per sequence
  device::Divisor pack;   // query heads that share a tile (device/query_tile.h)
  // Whether K and V may have rows beyond the end of a sequence: lens = packed or padded.
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
