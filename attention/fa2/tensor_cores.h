// FlashAttention-2 on tensor cores (mma.sync): which tiles there are, and the launch.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_FA2_TENSOR_CORES_H_
#define ATTENTION_FA2_TENSOR_CORES_H_

#include <cstdint>

#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/fa2/grid.h"
#include "attention/fa2/tensor_core_shape.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// The tiles that are compiled, by head dim: that of Q, K, V and O, padded. Of each head dim the
// first that fits a block's shared memory is the default, and the last fits every GPU's, 64 KiB.
//
// Rows a warp: 32 where O (head dim / 32 registers a row and lane) and S leave room, for then each
// fragment of K and V that is read from shared memory serves two products; else 16.
template <int kHeadDim>
struct TensorCoreShapes;
template <>
struct TensorCoreShapes<32> {
  using Large = TensorCoreShape<32, 4, 32, 64, 2>;
  using Medium = Large;
  using Small = Large;
};
template <>
struct TensorCoreShapes<64> {
  using Large = TensorCoreShape<64, 4, 32, 128, 2>;  // half the barriers of 64 keys
  using Medium = TensorCoreShape<64, 4, 32, 64, 2>;
  using Small = Medium;
};
template <>
struct TensorCoreShapes<96> {
  using Large = TensorCoreShape<96, 4, 32, 64, 2>;
  using Medium = TensorCoreShape<96, 4, 16, 64, 2>;
  using Small = Medium;
};
template <>
struct TensorCoreShapes<128> {
  using Large = TensorCoreShape<128, 4, 32, 64, 2>;  // all 255 registers
  using Medium = TensorCoreShape<128, 4, 16, 32, 2>;
  using Small = Medium;
};
template <>
struct TensorCoreShapes<192> {
  using Large = TensorCoreShape<192, 8, 16, 64, 1>;
  using Medium = TensorCoreShape<192, 4, 16, 32, 2>;
  using Small = TensorCoreShape<192, 2, 16, 32, 2>;
};
template <>
struct TensorCoreShapes<256> {
  using Large = TensorCoreShape<256, 8, 16, 64, 1>;
  using Medium = TensorCoreShape<256, 4, 16, 32, 2>;
  using Small = TensorCoreShape<256, 2, 16, 16, 2>;
};

enum class TileSize { kLarge, kMedium, kSmall };

struct TensorCoreCall {
  device::Arguments arguments;
  Grid grid;
  device::Element element = device::Element::kBFloat16;  // not kFloat32
  TileSize size = TileSize::kLarge;
  cudaStream_t stream = nullptr;
};

// kHeadDim: 32, 64, 96, 128, 192 or 256, at least d and dv. bf16 wants code for 8.0 or later
// (device/code_capability.h).
template <int kHeadDim>
cudaError_t LaunchTensorCores(const TensorCoreCall& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_TENSOR_CORES_H_
