// O of a consumer: the sum of P V over the tiles of keys, and P, which the next product takes.
//
//   sum.Clear()     a new query tile
//   sum.Round(s)    P of a tile of keys, from its weights
//   sum.Start(v)    starts O += P V
//   wgmma::Wait…
//   wgmma::Keep(sum.o().x)
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_SUM_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_SUM_CUH_

#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "attention/device/hopper/wgmma.cuh"
#include "attention/device/mma.cuh"

namespace attnlab::warp_specialized {

template <typename T, typename Shape>
class HopperSum {
 public:
  using Scores = device::wgmma::Accumulators<Shape::kKeys>;
  using Output = device::wgmma::Accumulators<Shape::kDimV>;

  __device__ void Clear() { is_new_ = true; }

  // P, as the A fragments of P V. Of each 32 keys of fp8, a lane has two of each eight. V's keys have the
  // same order (hopper_transpose.cuh).
  __device__ void Round(const Scores& s) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (Shape::kFp8) {
          const float* const x = s.x + 16 * i + j / 2 * 8 + j % 2 * 2;
          p_[i][j] = device::PackFp8(x[0], x[1], x[4], x[5]);
        } else {
          p_[i][j] = device::PackPair<T>(s.x[8 * i + 2 * j], s.x[8 * i + 2 * j + 1]);
        }
      }
    }
  }

  // One group of products.
  __device__ void Start(uint32_t v_address) {
    device::wgmma::Keep(o_.x);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) device::wgmma::Keep(p_[i]);
    device::wgmma::Fence();
    if constexpr (Shape::kFp8) {
      const device::wgmma::SumAlongRows v(v_address, Shape::kDimV);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        device::wgmma::MultiplyRows<V>(o_, p_[i], v.Step(i), i > 0 || !is_new_);
      }
    } else {
      const device::wgmma::SumAlongColumns v(v_address, Shape::kKeys);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        device::wgmma::MultiplyColumns<T>(o_, p_[i], v.Step(i), i > 0 || !is_new_);
      }
    }
    device::wgmma::Commit();
    is_new_ = false;
  }

  __device__ Output& o() { return o_; }

 private:
  using V = std::conditional_t<Shape::kE5m2V, __nv_fp8_e5m2, T>;
  static constexpr int kSteps = Shape::kKeys * Shape::kBytes / 32;

  Output o_;
  bool is_new_ = true;  // nothing is added up in O yet
  uint32_t p_[kSteps][4];
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SUM_CUH_
