// A call of the Hopper kernel: what the host passes to the device.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_

#include <cuda.h>

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/divisor.h"
#include "attention/device/element.h"
#include "attention/device/host_device.h"
#include "attention/device/tile_order.h"
#include "attention/warp_specialized/hopper_shape.h"
#include "attention/warp_specialized/shares.h"
#include "cuda_runtime.h"

namespace attnlab::warp_specialized {

// Scales of Q, K or V of fp8 (core/tensors.h). Null data: all are 1.
struct Scales {
  const float* data = nullptr;
  int64_t sequence = 0, block = 0, head = 0;  // strides
  int shift = 0;                              // log2 of the rows of a block

  ATTNLAB_HOST_DEVICE float At(int of_sequence, int row, int of_head) const {
    if (data == nullptr) return 1;
    return data[of_sequence * sequence + (row >> shift) * block + of_head * head];
  }
};

struct HopperArguments {
  CUtensorMap q, k, v, o;  // o: if `adds`, or if it is stored by TMA
  int key_tiles = 0;  // of a head, if V was transposed first: `v` then maps that (Pretranspose())
  device::Arguments a;
  device::Grid grid;     // the order of the query tiles
  device::Divisor pack;  // grid.pack
  int box_keys = 0;      // Options
  // A device::Counter. Null: blocks take tiles in a fixed order.
  unsigned long long* taken = nullptr;
  // Of the last query tiles, if there are such. Per warp of consumers, whether its part is there; and per block,
  // the parts (Shape::kPartBytes).
  Shares shares;
  unsigned long long* left = nullptr;
  float* parts = nullptr;
  // Whether K and V may have rows beyond the end of a sequence: those of other sequences, padding, or
  // the rest of a last page.
  bool rows_beyond = false;
  // Whether O and LSE of other keys are there, to which this call adds (Shape::kAdds).
  bool adds = false;
  // Of fp8.
  Scales q_scales, k_scales, v_scales;
  bool o_is_fp16 = false;  // else bf16
  uint4* aside = nullptr;  // HopperShape::kAsideBytes of each block
};

struct HopperCall {
  HopperArguments arguments;
  device::Element element = device::Element::kBFloat16;  // of shapes that are not fp8; not kFloat32
  int blocks = 0;
  bool early = false;          // LaunchRecord
  bool pairs = false;          // Options
  bool stores_by_tma = false;  // Options, and TMA can express O
  // Where V is transposed to first, if it is, and the keys and heads that it has.
  void* transposed = nullptr;
  int keys = 0, kv_heads = 0;
  cudaStream_t stream = nullptr;
};

template <typename Shape>
cudaError_t LaunchHopper(const HopperCall& call);

// Transposes V, for shapes that want it so (hopper_pretranspose.cu).
cudaError_t Pretranspose(const HopperCall& call);

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_CALL_H_
