// The scales of fp8: those of Q's rows, and of the keys of a tile. In 16 bits there are none.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_SCALES_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_SCALES_CUH_

#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

// Of a tile of keys: the producer hands them over together with K. A block with one scale has 64 keys or
// more, so 64 keys of a tile share one.
//
// The scale of K is part of what turns a score into base 2. That of V is part of P, so its logarithm is
// added to the score; the sum of the weights leaves it out again.
template <typename Shape, bool = Shape::kFp8>
class TileScales {
 public:
  static constexpr int kParts = 1;
  __device__ float K(int) const { return 1; }
  __device__ float LogV(int) const { return 0; }
  __device__ float InverseV(int) const { return 1; }
};

template <typename Shape>
class TileScales<Shape, true> {
 public:
  static constexpr int kParts = Shape::kKeys / 64;
  static constexpr int kCount = 3 * kParts;

  // Loads the scale of which the lane makes one of kCount numbers of tile i.
  static __device__ float Load(const HopperArguments& h, const Work& work, int i, int lane) {
    if (lane >= kCount || i < 0) return 1;
    // Blocks behind the last key have no scale; their keys are masked out, and their V is 0.
    const int key = min(i * Shape::kKeys + lane % kParts * 64, work.keys - 1);
    return (lane < kParts ? h.k_scales : h.v_scales)
        .At(work.sequence, work.first_key + key, work.kv.head);
  }
  __device__ void Set(int lane, float scale) {
    if (lane >= kCount) return;
    numbers_[lane] = lane < kParts ? scale : lane < 2 * kParts ? log2f(scale) : 1 / scale;
  }

  __device__ float K(int part) const { return numbers_[part]; }
  __device__ float LogV(int part) const { return numbers_[kParts + part]; }
  __device__ float InverseV(int part) const { return numbers_[2 * kParts + part]; }

 private:
  float numbers_[kCount];
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SCALES_CUH_
