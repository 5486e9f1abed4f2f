// The softmax of a row whose keys come in tiles (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018): the largest score so far, and the sum of exponentials relative
// to it.
//
// Scores are in base 2: scale * log2(e) * Q K, so that an exponential is one instruction. For each
// tile, with `tile_max` its largest score:
//
//   const float factor = state.Grow(tile_max);       // for O, which was summed with the old
//   maximum for each key: p = exp2f(score - state.Base()), state.sum += p
//
// A hidden key's score is minus infinity, and a row may have seen none so far.
#ifndef ATTENTION_DEVICE_ONLINE_SOFTMAX_H_
#define ATTENTION_DEVICE_ONLINE_SOFTMAX_H_

#include <cmath>

#include "attention/device/host_device.h"
#ifdef __CUDACC__
#include "attention/device/special_functions.cuh"
#endif

namespace attnlab::device {

struct OnlineSoftmax {
  float max = -INFINITY;  // base 2
  float sum = 0;

  // What exponentials are relative to: the maximum, or 0 before the first key, because minus
  // infinity less itself is NaN.
  ATTNLAB_HOST_DEVICE float Base() const { return max == -INFINITY ? 0 : max; }

  // Takes in the maximum of more keys, and rescales the sum to it. Returns the factor, by which the
  // caller multiplies all else that it summed so far: 1 where the maximum has not grown, 0 before
  // the first key. NaN among the keys is left to the sum.
  ATTNLAB_HOST_DEVICE float Grow(float more_max) {
    const float old = max;
    max = fmaxf(max, more_max);
    const float factor = Power(old - Base());
    sum *= factor;
    return factor;
  }

  // 2 to the x; where that is below 2^-126, 0 on the device, for which it is one instruction.
  // Merging parts, which is done once, keeps exp2f().
  ATTNLAB_HOST_DEVICE static float Power(float x) {
#ifdef __CUDA_ARCH__
    return Exp2(x);
#else
    return exp2f(x);
#endif
  }

  // The row over the keys of both parts, in either order; an empty part changes nothing.
  ATTNLAB_HOST_DEVICE static OnlineSoftmax Merge(const OnlineSoftmax& a, const OnlineSoftmax& b) {
    OnlineSoftmax merged;
    merged.max = fmaxf(a.max, b.max);
    merged.sum = a.sum * exp2f(a.max - merged.Base()) + b.sum * exp2f(b.max - merged.Base());
    return merged;
  }

  // The share of a part's normalised O in that of the whole row; 0 where the whole has no key.
  ATTNLAB_HOST_DEVICE float ShareIn(const OnlineSoftmax& whole) const {
    return whole.sum == 0 ? 0 : sum * exp2f(max - whole.Base()) / whole.sum;
  }

  // By which O is multiplied at the end: 0 for a row that saw no key.
  ATTNLAB_HOST_DEVICE float Inverse() const { return sum == 0 ? 0 : 1 / sum; }

  // Natural log; minus infinity for a row that saw no key.
  ATTNLAB_HOST_DEVICE float Lse() const {
    constexpr float kLn2 = 0.693147180559945309f;
    return sum == 0 ? -INFINITY : (max + log2f(sum)) * kLn2;
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_ONLINE_SOFTMAX_H_
