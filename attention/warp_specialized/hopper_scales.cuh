// The scales of fp8: those of Q's rows, and of the keys of a tile. In 16 bits there are none.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_SCALES_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_SCALES_CUH_

#include "attention/device/hopper/wgmma.cuh"
#include "attention/warp_specialized/hopper_call.h"
#include "attention/warp_specialized/hopper_work.cuh"

namespace attnlab::warp_specialized {

// Of a tile of keys: the producer hands them over together with K. A block with one scale has 64 keys or
// more, so 64 keys of a tile share one.
template <typename Shape, bool = Shape::kFp8>
class TileScales {
 public:
  __device__ float K(int) const { return 1; }
};

template <typename Shape>
class TileScales<Shape, true> {
 public:
  static constexpr int kParts = Shape::kKeys / 64;
  static constexpr int kCount = 2 * kParts;
  using Scores = device::wgmma::Accumulators<Shape::kKeys>;

  // Loads the lane's of kCount scales of tile i.
  static __device__ float Load(const HopperArguments& h, const Work& work, int i, int lane) {
    if (lane >= kCount || i < 0) return 1;
    // Blocks behind the last key have no scale; their keys are masked out, and their V is 0.
    const int key = min(i * Shape::kKeys + lane % kParts * 64, work.keys - 1);
    return (lane < kParts ? h.k_scales : h.v_scales)
        .At(work.sequence, work.first_key + key, work.kv.head);
  }
  __device__ void Set(int lane, float scale) {
    if (lane < kParts) k_[lane] = scale;
    if (lane >= kParts && lane < kCount) v_[lane - kParts] = scale;
  }

  __device__ float K(int part) const { return k_[part]; }

  // P V is multiplied by one scale, the largest, so weights of keys with a smaller one become smaller.
  // Returns it.
  __device__ float MultiplyV(Scores& s) const {
    float largest = v_[0];
    bool same = true;
#pragma unroll
    for (int part = 1; part < kParts; ++part) {
      same &= v_[part] == v_[0];
      if (fabsf(v_[part]) > fabsf(largest)) largest = v_[part];
    }
    if (same) return largest;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float ratio = v_[part] / largest;
#pragma unroll
      for (int i = 0; i < 32; ++i) s.x[32 * part + i] *= ratio;
    }
    return largest;
  }

 private:
  float k_[kParts], v_[kParts];
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SCALES_CUH_
