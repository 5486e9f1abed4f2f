// The head dims that tiles are compiled for, as types. Smaller head dims are padded with zeros to
// the next one.
#ifndef ATTENTION_DEVICE_HEAD_DIM_H_
#define ATTENTION_DEVICE_HEAD_DIM_H_

#include "cuda_runtime.h"

namespace attnlab::device {

template <int kHeadDim>
struct HeadDim {
  static constexpr int kValue = kHeadDim;
};

// Calls launch(HeadDim<head_dim>()). Returns cudaErrorInvalidValue if no tile is compiled for
// head_dim.
//
//   ForHeadDim(96, [&](auto dim) { return LaunchMine<decltype(dim)::kValue>(…); });
template <typename Launch>
cudaError_t ForHeadDim(int head_dim, const Launch& launch) {
  switch (head_dim) {
    case 32:
      return launch(HeadDim<32>());
    case 64:
      return launch(HeadDim<64>());
    case 96:
      return launch(HeadDim<96>());
    case 128:
      return launch(HeadDim<128>());
    case 192:
      return launch(HeadDim<192>());
    case 256:
      return launch(HeadDim<256>());
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_HEAD_DIM_H_
