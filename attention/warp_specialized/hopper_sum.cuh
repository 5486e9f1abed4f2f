// O of a consumer: the sum of P V over the tiles of keys, and P, which the next product takes.
//
//   sum.Clear()              a new query tile
//   sum.Round(s, …)          P of a tile of keys, from its weights
//   sum.Start(v)             starts P V; one group of products
//   wgmma::Wait…
//   sum.Finish(v)            P V is part of O
//
// In 16 bits, wgmma adds to O. Of fp8 its sums keep about 14 bits, too few for more than some hundred keys.
// So P V of each tile has accumulators of its own, and ordinary additions in fp32 make it part of O. These
// also apply V's scale, and cost no more than the product would save.
#ifndef ATTENTION_WARP_SPECIALIZED_HOPPER_SUM_CUH_
#define ATTENTION_WARP_SPECIALIZED_HOPPER_SUM_CUH_

#include <cuda_fp8.h>

#include <cstdint>

#include "attention/device/hopper/wgmma.cuh"
#include "attention/device/mma.cuh"
#include "attention/warp_specialized/hopper_scales.cuh"

namespace attnlab::warp_specialized {

template <typename T, typename Shape>
class HopperSum {
 public:
  using Scores = device::wgmma::Accumulators<Shape::kKeys>;
  using Output = device::wgmma::Accumulators<Shape::kDimV>;

  __device__ void Clear() { is_new_ = true; }

  // P, as the A fragments of P V.
  __device__ void Round(const Scores& s, const TileScales<Shape>&) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        p_[i][j] = device::PackPair<T>(s.x[8 * i + 2 * j], s.x[8 * i + 2 * j + 1]);
      }
    }
  }

  __device__ void Start(uint32_t v_address) {
    const device::wgmma::SumAlongColumns v(v_address, Shape::kKeys);
    device::wgmma::Keep(o_.x);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) device::wgmma::Keep(p_[i]);
    device::wgmma::Fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      device::wgmma::MultiplyColumns<T>(o_, p_[i], v.Step(i), i > 0 || !is_new_);
    }
    device::wgmma::Commit();
    is_new_ = false;
  }
  __device__ void Finish(uint32_t) { device::wgmma::Keep(o_.x); }

  __device__ Output& o() { return o_; }

 private:
  static constexpr int kSteps = Shape::kKeys / 16;

  Output o_;
  bool is_new_ = true;  // nothing is added up in O yet
  uint32_t p_[kSteps][4];
};

template <typename Shape>
class HopperSum<__nv_fp8_e4m3, Shape> {
 public:
  using Scores = device::wgmma::Accumulators<Shape::kKeys>;
  using Output = device::wgmma::Accumulators<Shape::kDimV>;

  __device__ void Clear() {
#pragma unroll
    for (float& x : o_.x) x = 0;
  }

  // Of each 32 keys, a lane has two of each eight. V's keys have the same order (hopper_transpose.cuh).
  __device__ void Round(Scores& s, const TileScales<Shape>& scales) {
    scale_ = scales.MultiplyV(s);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const x = s.x + 16 * i + j / 2 * 8 + j % 2 * 2;
        p_[i][j] = device::PackFp8(x[0], x[1], x[4], x[5]);
      }
    }
  }

  __device__ void Start(uint32_t v) { StartChunk(v, 0); }
  __device__ void Finish(uint32_t v) {
    AddChunk(0);
#pragma unroll
    for (int chunk = 1; chunk < Shape::kDimV / kChunk; ++chunk) {
      StartChunk(v, chunk);
      device::wgmma::Wait<0>();
      AddChunk(chunk);
    }
  }

  __device__ Output& o() { return o_; }

 private:
  static constexpr int kSteps = Shape::kKeys / 32;
  // Columns of V that are multiplied at once: all, or as many as there are registers for.
  static constexpr int kChunk = Shape::kDimV <= 128 ? Shape::kDimV : 64;

  __device__ void StartChunk(uint32_t v_address, int chunk) {
    const device::wgmma::SumAlongRows v(v_address + chunk * kChunk * 128, Shape::kDimV);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) device::wgmma::Keep(p_[i]);
    device::wgmma::Fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      device::wgmma::MultiplyRows<__nv_fp8_e4m3>(tile_, p_[i], v.Step(i), i > 0);
    }
    device::wgmma::Commit();
  }
  __device__ void AddChunk(int chunk) {
    device::wgmma::Keep(tile_.x);
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      float& o = o_.x[chunk * kChunk / 2 + i];
      o = fmaf(tile_.x[i], scale_, o);
    }
  }

  Output o_;
  device::wgmma::Accumulators<kChunk> tile_;
  float scale_ = 1;  // of V
  uint32_t p_[kSteps][4];
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SUM_CUH_
