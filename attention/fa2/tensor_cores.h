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

// The tiles that are compiled, by head dim: that of Q, K, V and O, padded. The large one is the
// default; the small one fits the 64 KiB of shared memory a block that 7.5 has.
//
// 32 rows a warp, where O (head dim / 32 registers a row and lane) and S leave room for them: each
// fragment of K and V that is read from shared memory then serves two products. Where they do not,
// 16 rows, and two blocks a multiprocessor with one stage of K and V rather than one block with
// two, for while one waits the other works. So does a third block, where registers are enough.
template <int kHeadDim>
struct TensorCoreShapes;
template <>
struct TensorCoreShapes<32> {
  using Large = TensorCoreShape<32, 4, 32, 64, 3>;  // 168 registers are enough
  using Small = Large;
};
template <>
struct TensorCoreShapes<64> {
  using Large = TensorCoreShape<64, 4, 32, 32, 3>;  // 168 registers are enough
  using Small = Large;
};
template <>
struct TensorCoreShapes<96> {
  using Large = TensorCoreShape<96, 4, 32, 64, 2>;
  using Small = TensorCoreShape<96, 4, 16, 64, 2>;
};
template <>
struct TensorCoreShapes<128> {
  using Large = TensorCoreShape<128, 4, 32, 64, 2>;  // every register there is
  using Small = TensorCoreShape<128, 4, 16, 64, 2, 1>;
};
template <>
struct TensorCoreShapes<192> {
  using Large = TensorCoreShape<192, 4, 16, 64, 2, 1, true>;  // Q: 48 registers, an eighth of reads
  using Small = TensorCoreShape<192, 4, 16, 32, 2, 1>;
};
template <>
struct TensorCoreShapes<256> {
  using Large = TensorCoreShape<256, 4, 16, 64, 2, 1>;
  using Small = TensorCoreShape<256, 2, 16, 32, 2, 1>;  // 64 rows of Q leave no room for K and V
};

enum class TileSize { kLarge, kSmall };

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
