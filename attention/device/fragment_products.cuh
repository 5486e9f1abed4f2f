// The two products of a warp on 16-bit fragments, S = Q Kᵀ and O += P V, and what comes between and
// after them.
//
// Q, K and V lie in shared memory as Swizzle (device/swizzle.h) lays them out, with rows
// Shape::kRowBytes apart. S, P and O are in registers. Each lane has its own addresses: of the row
// and the 16-byte chunk that it points at for ldmatrix, at the product's first key, dim or column.
#ifndef ATTENTION_DEVICE_FRAGMENT_PRODUCTS_CUH_
#define ATTENTION_DEVICE_FRAGMENT_PRODUCTS_CUH_

#include <cstdint>

#include "attention/device/fragments.cuh"
#include "attention/device/mma.cuh"

namespace attnlab::device {

template <class Shape, typename T>
class FragmentProducts {
  static constexpr int kDim = Shape::kHeadDim;
  static constexpr int kM = Shape::kWarpRows / 16;                   // blocks of 16 rows
  static constexpr int kN = Shape::kKeys / Shape::kSharing / 8;      // blocks of 8 keys
  static constexpr int kNv = Shape::kHeadDim / Shape::kSharing / 8;  // blocks of 8 columns of V, O
  // How many loads from shared memory run ahead of the products that use them. More would take
  // registers that the larger tile does not have.
  static constexpr int kAhead = kM == 1 ? 2 : 1;
  static constexpr int kKept = Shape::kKeptQ;

  static __device__ void LoadQ(uint32_t q_address, int k, AFragment (&q)[kM]) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      LoadMatrices(q[m].x, PairOfChunks<kDim>(q_address, k) + m * 16 * Shape::kRowBytes);
    }
  }

 public:
  using Scores = Accumulators<Shape::kWarpRows, kN>;
  using Output = Accumulators<Shape::kWarpRows, kNv>;
  struct Probabilities {
    AFragment x[kM][kN / 2];
  };
  // The fragments of Q that stay in registers for all tiles of keys.
  using KeptQ = AFragment[kKept > 0 ? kKept : 1][kM];

  static __device__ void KeepQ(uint32_t q_address, KeptQ& kept) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) LoadQ(q_address, k, kept[k]);
  }

  // S = Q Kᵀ.
  static __device__ void MultiplyQk(uint32_t q_address, uint32_t k_address, const KeptQ& kept,
                                    Scores& s) {
    constexpr int kBlocks = kN / 2, kCount = kDim / 16 * kBlocks;
    AFragment q[2][kM];
    uint32_t keys[kAhead + 1][4];
    const auto q_at = [&](int k, int m) -> const AFragment& {
      return k < kKept ? kept[k < kKept ? k : 0][m] : q[k % 2][m];
    };
    const auto load_keys = [&](int i) {
      LoadMatrices(keys[i % (kAhead + 1)], PairOfChunks<kDim>(k_address, i / kBlocks) +
                                               i % kBlocks * 16 * Shape::kRowBytes);
    };
    if (kKept == 0) LoadQ(q_address, 0, q[0]);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load_keys(i);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int k = i / kBlocks, n = i % kBlocks * 2;
      if (i + kAhead < kCount) load_keys(i + kAhead);
      if (n == 0 && k + 1 >= kKept && k + 1 < kDim / 16) LoadQ(q_address, k + 1, q[(k + 1) % 2]);
      const uint32_t(&b)[4] = keys[i % (kAhead + 1)];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        if (k == 0) s.x[m][n] = s.x[m][n + 1] = {};
        Mma<T>(s.x[m][n], q_at(k, m), {b[0], b[1]});
        Mma<T>(s.x[m][n + 1], q_at(k, m), {b[2], b[3]});
      }
    }
  }

  // Computes P, which is rounded, and its sums, which are not. `warp` is a WarpRows.
  template <class Warp>
  static __device__ void Weigh(const Scores& s, float scale_log2, Warp& warp, Probabilities& p) {
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      const int m = i / kN, n = i % kN;
      float e[4];
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        e[x] = warp.State(2 * m + x / 2).Weight(s.x[m][n].x[x], scale_log2);
      }
      warp.State(2 * m).sum += e[0] + e[1];
      warp.State(2 * m + 1).sum += e[2] + e[3];
      p.x[m][n / 2].x[n % 2 * 2] = PackPair<T>(e[0], e[1]);
      p.x[m][n / 2].x[n % 2 * 2 + 1] = PackPair<T>(e[2], e[3]);
    }
  }

  // O += P V.
  static __device__ void AddPv(uint32_t v_address, const Probabilities& p, Output& o) {
    constexpr int kBlocks = kNv / 2, kCount = kN / 2 * kBlocks;
    uint32_t values[kAhead + 1][4];
    const auto load = [&](int i) {
      LoadMatricesTransposed(values[i % (kAhead + 1)], PairOfChunks<kDim>(v_address, i % kBlocks) +
                                                           i / kBlocks * 16 * Shape::kRowBytes);
    };
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load(i);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int k = i / kBlocks, n = i % kBlocks * 2;
      if (i + kAhead < kCount) load(i + kAhead);
      const uint32_t(&b)[4] = values[i % (kAhead + 1)];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        Mma<T>(o.x[m][n], p.x[m][k], {b[0], b[1]});
        Mma<T>(o.x[m][n + 1], p.x[m][k], {b[2], b[3]});
      }
    }
  }

  // Stores O, divided by the sums of P and rounded, to rows that are laid out like those of Q.
  template <class Warp>
  static __device__ void StoreOutput(const Output& o, const Warp& warp, uint32_t o_address) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const float inverse[2] = {warp.State(2 * m).Inverse(), warp.State(2 * m + 1).Inverse()};
#pragma unroll
      for (int n = 0; n < kNv; n += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&x)[4] = o.x[m][n + i / 2].x;
          const int half = i % 2;
          pairs[i] = PackPair<T>(x[2 * half] * inverse[half], x[2 * half + 1] * inverse[half]);
        }
        StoreMatrices(PairOfChunks<kDim>(o_address, n / 2) + m * 16 * Shape::kRowBytes, pairs);
      }
    }
  }
};

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_FRAGMENT_PRODUCTS_CUH_
