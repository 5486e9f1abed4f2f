// A pair of elements, turned by an angle (core/rotary.h), in the same operations on the CPU and on a GPU.
#ifndef ATTENTION_FP8_ROTATE_H_
#define ATTENTION_FP8_ROTATE_H_

#include <cmath>

#include "attention/device/host_device.h"

namespace attnlab::fp8 {

// Written as fmaf(), since a compiler may join products and sums, or not.
ATTNLAB_HOST_DEVICE inline void Turn(float& first, float& second, float cosine, float sine) {
  const float turned = fmaf(first, cosine, -(second * sine));
  second = fmaf(first, sine, second * cosine);
  first = turned;
}

}  // namespace attnlab::fp8

#endif  // ATTENTION_FP8_ROTATE_H_
