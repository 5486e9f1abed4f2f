// O of a consumer: the sum of P V over the tiles of keys, and P, which the next product takes.
//
//   sum.Clear()              a new query tile
//   sum.Prepare(s, …)        may be before P V of the tile before is done
//   sum.Round(s, …)          P of a tile of keys, from its weights
//   sum.Start(v)             starts P V; one group of products
//   sum.Finish<groups>(v)    waits for it; P V is part of O. So many groups of products were started
//                            after it
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

  __device__ void Prepare(const Scores&, const TileScales<Shape>&) {}
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
  template <int kGroups>
  __device__ void Finish(uint32_t) {
    device::wgmma::Wait<kGroups>();
    device::wgmma::Keep(o_.x);
  }

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

  // Frees the registers of the weights if another chunk needs them. Otherwise that is slower.
  __device__ void Prepare(Scores& s, const TileScales<Shape>& scales) {
    if constexpr (kChunks > 1) RoundPairs(s, scales);
  }
  // Of each 32 keys, a lane has two of each eight. V's keys have the same order (hopper_transpose.cuh).
  __device__ void Round(Scores& s, const TileScales<Shape>& scales) {
    if constexpr (kChunks == 1) RoundPairs(s, scales);
    scale_ = next_scale_;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t* const pair = pairs_ + 8 * i + j / 2 * 4 + j % 2;
        p_[i][j] = __byte_perm(pair[0], pair[2], 0x5410);
      }
    }
  }

  __device__ void Start(uint32_t v) { StartChunk(v, 0); }
  // One chunk of columns is added to O while the next one is multiplied.
  template <int kGroups>
  __device__ void Finish(uint32_t v) {
    static_assert(kChunks == 1 || kGroups == 0);
#pragma unroll
    for (int chunk = 1; chunk < kChunks; ++chunk) {
      StartChunk(v, chunk);
      device::wgmma::Wait<1>();
      AddChunk(chunk - 1);
    }
    device::wgmma::Wait<kGroups>();
    AddChunk(kChunks - 1);
  }

  __device__ Output& o() { return o_; }

 private:
  static constexpr int kSteps = Shape::kKeys / 32, kPairs = Shape::kKeys / 4;
  // Columns of V that are multiplied at once: all, or as many as there are registers for.
  static constexpr int kChunk = Shape::kDimV <= 128 ? Shape::kDimV : 64;
  static constexpr int kChunks = Shape::kDimV / kChunk;

  __device__ void RoundPairs(Scores& s, const TileScales<Shape>& scales) {
    next_scale_ = scales.MultiplyV(s);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs_[i] = device::PackFp8(s.x[2 * i], s.x[2 * i + 1]);
      device::wgmma::Keep(pairs_[i]);  // here, or ptxas does it after the wait
    }
  }
  __device__ void StartChunk(uint32_t v_address, int chunk) {
    const device::wgmma::SumAlongRows v(v_address + chunk * kChunk * 128, Shape::kDimV);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) device::wgmma::Keep(p_[i]);
    device::wgmma::Fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      device::wgmma::MultiplyRows<__nv_fp8_e4m3>(tiles_[chunk % 2], p_[i], v.Step(i), i > 0);
    }
    device::wgmma::Commit();
  }
  __device__ void AddChunk(int chunk) {
    auto& tile = tiles_[chunk % 2];
    device::wgmma::Keep(tile.x);
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      float& o = o_.x[chunk * kChunk / 2 + i];
      o = fmaf(tile.x[i], scale_, o);
    }
  }

  Output o_;
  device::wgmma::Accumulators<kChunk> tiles_[kChunks == 1 ? 1 : 2];
  float scale_ = 1, next_scale_ = 1;  // of V
  uint32_t pairs_[kPairs];
  uint32_t p_[kSteps][4];
};

}  // namespace attnlab::warp_specialized

#endif  // ATTENTION_WARP_SPECIALIZED_HOPPER_SUM_CUH_
