// The head dims that tiles are compiled for, as types: less is padded to the next with zeros.
#ifndef ATTENTION_DEVICE_HEAD_DIM_H_
#define ATTENTION_DEVICE_HEAD_DIM_H_

#include "cuda_runtime.h"

namespace attnlab::device {

template <int kHeadDim>
struct HeadDim {
  static constexpr int kValue = kHeadDim;
};

// launch(HeadDim<head_dim>()), for one of those that there are; cudaErrorInvalidValue for any
// other.
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
