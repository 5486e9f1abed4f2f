// The softmax of a row whose keys come in parts (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018). The state is a running maximum and the sum of exponentials
// relative to it. The caller keeps O and multiplies it by the factors that these functions return.
//
// For each tile of keys, let `max` be its largest score. Keys that the row does not see have a
// score of minus infinity.
//
//   const float factor = row.Grow(max, scale);          // or GrowLazily()
//   O *= factor;
//   for each key: p = row.Weight(score, scale), row.sum += p, O += p V
//
// At the end O *= row.Inverse(), and LSE is row.Lse().
//
// `scale` turns scores into base 2, where an exponential is one instruction. It is the problem's
// scale times log2(e), or 1 if the scores are in base 2 already. It must be positive.
//
// The running maximum need not be the exact maximum, only near it. GrowLazily() keeps it until a
// score exceeds it by more than 8 in base 2. So P is at most 2^8 = 256, and O is rarely rescaled.
#ifndef ATTENTION_DEVICE_ONLINE_SOFTMAX_H_
#define ATTENTION_DEVICE_ONLINE_SOFTMAX_H_

#include <cmath>

#include "attention/device/host_device.h"
#ifdef __CUDACC__
#include "attention/device/special_functions.cuh"
#endif

namespace attnlab::device {

struct OnlineSoftmax {
  // neg_max of a row that has seen no key. Any score exceeds it, and the weight of a hidden key is
  // 0. It is finite because infinity minus infinity is NaN.
  static constexpr float kNoKey = 3.402823466e38f;
  static constexpr float kMostGrowth = 8;

  float neg_max = kNoKey;  // minus the running maximum, in base 2
  float sum = 0;           // of the weights; may be one thread's share

  // The weight of a key, before the division by the sum.
  ATTNLAB_HOST_DEVICE float Weight(float score, float scale = 1) const {
    return Power(fmaf(score, scale, neg_max));
  }

  // Takes in the maximum of more keys. Returns the factor by which the caller multiplies what it
  // has summed so far: 1 if the maximum has not grown, 0 before the first key. Ignores NaN, which
  // reaches the result through the sum.
  ATTNLAB_HOST_DEVICE float Grow(float max, float scale = 1) {
    return MoveTo(fminf(neg_max, -max * scale));
  }

  // The same, but only if a score exceeds the running maximum by more than kMostGrowth. The running
  // maximum then becomes the true maximum: a key that outweighs all others has a weight of exactly
  // 1, which no dtype rounds. Or it becomes so much less that this key has a weight of 2^log_top.
  ATTNLAB_HOST_DEVICE float GrowLazily(float max, float scale = 1, float log_top = 0) {
    return MoveTo(Exceeds(max, scale) ? log_top - max * scale : neg_max);
  }
  ATTNLAB_HOST_DEVICE bool Exceeds(float max, float scale = 1) const {
    return fmaf(max, scale, neg_max) > kMostGrowth;
  }

  // For weights that are relative to a running maximum far below their scores. The running maximum
  // becomes the score of the weight `largest`. Returns the factor for O and for the weights.
  ATTNLAB_HOST_DEVICE float GrowTo(float largest) { return MoveTo(neg_max - log2f(largest)); }

  // Makes the sum relative to another maximum. Returns the factor for O.
  ATTNLAB_HOST_DEVICE float MoveTo(float other_neg_max) {
    const float factor = Power(other_neg_max - neg_max);
    neg_max = other_neg_max;
    sum *= factor;
    return factor;
  }

  // Merges the state of a part with other keys into this one. The order does not matter, and an
  // empty part changes nothing. The two O, neither divided by its sum yet, are merged as
  //
  //   const MergeFactors f = row.Merge(part);
  //   O = f.mine * O + f.parts * O of the part
  struct MergeFactors {
    float mine, parts;
  };
  ATTNLAB_HOST_DEVICE MergeFactors Merge(const OnlineSoftmax& part) {
    const float least = fminf(neg_max, part.neg_max);
    const float parts = Power(least - part.neg_max);
    const float mine = MoveTo(least);
    sum += part.sum * parts;
    return {mine, parts};
  }

  // The state of a part whose O is already divided by its sum, from the part's LSE.
  ATTNLAB_HOST_DEVICE static OnlineSoftmax OfLse(float lse) {
    if (lse == -INFINITY) return {};
    return {-lse * 1.44269504088896341f, 1};
  }

  // The factor by which O is multiplied at the end: 0 for a row that saw no key.
  ATTNLAB_HOST_DEVICE float Inverse() const {
#ifdef __CUDA_ARCH__
    return sum == 0 ? 0 : Reciprocal(sum);
#else
    return sum == 0 ? 0 : 1 / sum;
#endif
  }

  // Natural log; minus infinity for a row that saw no key.
  ATTNLAB_HOST_DEVICE float Lse() const {
    constexpr float kLn2 = 0.693147180559945309f;
    return sum == 0 ? -INFINITY : (log2f(sum) - neg_max) * kLn2;
  }

  // 2^x. On the device, results below 2^-126 are 0.
  ATTNLAB_HOST_DEVICE static float Power(float x) {
#ifdef __CUDA_ARCH__
    return Exp2(x);
#else
    return exp2f(x);
#endif
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_ONLINE_SOFTMAX_H_
