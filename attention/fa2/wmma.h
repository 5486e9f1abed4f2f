// FlashAttention-2 through the portable interface to tensor cores, nvcuda::wmma: a rung to learn
// from, which tensor_cores.h is to be compared with.
//
// Plain C++ without Abseil, as what device code includes.
#ifndef ATTENTION_FA2_WMMA_H_
#define ATTENTION_FA2_WMMA_H_

#include "attention/device/arguments.h"
#include "attention/device/element.h"
#include "attention/fa2/grid.h"
#include "cuda_runtime.h"

namespace attnlab::fa2 {

// What the kernel is compiled for. `HeadDim` is that of Q, K and V, padded with zeros; elements
// have 16 bits.
template <int HeadDim>
struct WmmaShape {
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kBlock = 16;  // wmma multiplies 16 x 16 by 16 x 16
  static constexpr int kWarps = 4;   // of one block of rows each
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = kWarps * kBlock;
  // 32 keys of 192 or more would not fit the 64 KiB of 7.5, of which the kernel has a few more.
  static constexpr int kKeys = HeadDim <= 128 ? 32 : 16;

  // Elements from row to row in shared memory. wmma reads rows at a constant distance, so a swizzle
  // (device/swizzle.h) is out of the question; 16 bytes more than a row shift rows by four banks.
  static constexpr int kStride = HeadDim + 8;
  static constexpr int kScoreStride = kKeys + 4;  // fp32
  static constexpr int kWeightStride = kKeys + 8;

  // Shared memory: Q, K, V, S, P. Bytes from its beginning, all multiples of the 32 that wmma asks
  // for.
  static constexpr int kK = kRows * kStride * 2;
  static constexpr int kV = kK + kKeys * kStride * 2;
  static constexpr int kS = kV + kKeys * kStride * 2;
  static constexpr int kP = kS + kRows * kScoreStride * 4;
  static constexpr int kSharedBytes = kP + kRows * kWeightStride * 2;
};

// The table as data. All of it fits the 64 KiB of shared memory that every GPU has.
struct WmmaTileRow {
  int head_dim = 0;  // the most that d and dv may be
  int rows = 0, keys = 0, threads = 0;
  int shared_bytes = 0;
};

template <class Shape>
constexpr WmmaTileRow WmmaRowOf() {
  static_assert(Shape::kSharedBytes < 64 << 10);
  return {Shape::kHeadDim, Shape::kRows, Shape::kKeys, Shape::kThreads, Shape::kSharedBytes};
}

inline constexpr WmmaTileRow kWmmaTiles[] = {
    WmmaRowOf<WmmaShape<32>>(),  WmmaRowOf<WmmaShape<64>>(),  WmmaRowOf<WmmaShape<96>>(),
    WmmaRowOf<WmmaShape<128>>(), WmmaRowOf<WmmaShape<192>>(), WmmaRowOf<WmmaShape<256>>(),
};

struct WmmaCall {
  device::Arguments arguments;
  Grid grid;
  device::Element element = device::Element::kBFloat16;  // not kFloat32
  cudaStream_t stream = nullptr;
};

// kHeadDim: one of the table, at least d and dv. bf16 wants code for 8.0 or later
// (device/code_capability.h).
template <int kHeadDim>
cudaError_t LaunchWmma(const WmmaCall& call);

}  // namespace attnlab::fa2

#endif  // ATTENTION_FA2_WMMA_H_
