// The two matrix products of attention on one tile, register-blocked.
//
// Both are sums of outer products: R numbers of one factor, each broadcast to a vector, times C
// vectors of the other. The R * C sums stay in registers over the whole inner dimension. AVX-512
// has 6 x 4 = 24 sums, 4 vectors and a broadcast in 29 of its 32 registers, and 10 loads per 24
// multiply-adds. With 16 registers there are 6 x 2 = 12 sums.
//
//   scores    Sᵀ[key][row] = sum over i of K[key][i] Qᵀ[i][row]       broadcasts K, vectors of Qᵀ
//   outputs   O[row][c]   += sum over keys of Sᵀ[key][row] V[key][c]  broadcasts P, vectors of V
//             with O first multiplied by the factor of the online softmax
//
// Scores are computed transposed, so that neither K nor P has to be transposed. A broadcast reads K
// along its rows, and P along a row of Sᵀ. Queries are transposed once for all keys.
//
// Included once for each target, inside the file that dispatches.
#include <array>
#include <cstdint>
#include <utility>

#include "attention/cpu/exp-inl.h"
#include "attention/cpu/targets.h"
#include "hwy/highway.h"

#if defined(ATTENTION_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CPU_MATMUL_INL_H_
#undef ATTENTION_CPU_MATMUL_INL_H_
#else
#define ATTENTION_CPU_MATMUL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {

// Rows (R) and vectors (C) that fit the registers of the target.
constexpr int64_t kBlockRows = 6;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int64_t kBlockVectors = 4;
#else
constexpr int64_t kBlockVectors = 2;
#endif

// Query rows of a panel, and columns of a panel of V.
constexpr int64_t kPanel = kBlockVectors * kLanes;

// Sᵀ[j][c], j < R, c < C * kLanes. `k`: R rows of d floats, k_stride apart. `q`: d rows of
// C * kLanes floats, q_stride apart, aligned to a vector; so is `s`.
template <int R, int C>
void ScoresBlock(const float* HWY_RESTRICT k, int64_t k_stride, const float* HWY_RESTRICT q,
                 int64_t q_stride, int64_t d, float* HWY_RESTRICT s, int64_t s_stride) {
  const F df;
  VF sum[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sum[r][c] = hn::Zero(df);
  }
  for (int64_t i = 0; i < d; ++i) {
    VF b[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) b[c] = hn::Load(df, q + i * q_stride + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VF a = hn::Set(df, k[r * k_stride + i]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = hn::MulAdd(a, b[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) hn::Store(sum[r][c], df, s + r * s_stride + c * kLanes);
  }
}

// sum[r][c] = T[r][c] + sum over j < keys of P[j][r] V[j][c], r < R, c < C * kLanes, and then
// O[r][c] = factor[r] O[r][c] + sum[r][c]. If `t` is null, T is zero. If `factor` is null, O is not
// read and becomes the sum. Rows of `v`, `t` and `o` are aligned to a vector.
//
// The sum over a tile of keys starts at zero and is added to O as a whole. If each key were added
// directly to the O of a hundred thousand keys, its share would drown in O's rounding.
template <int R, int C>
void OutputsBlock(const float* HWY_RESTRICT p, int64_t p_stride, const float* HWY_RESTRICT v,
                  int64_t v_stride, int64_t keys, const float* t, int64_t t_stride,
                  const float* HWY_RESTRICT factor, float* o, int64_t o_stride) {
  const F df;
  VF sum[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sum[r][c] = hn::Zero(df);
  }
  if (t != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = hn::Load(df, t + r * t_stride + c * kLanes);
    }
  }
  for (int64_t j = 0; j < keys; ++j) {
    VF b[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) b[c] = hn::Load(df, v + j * v_stride + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VF a = hn::Set(df, p[j * p_stride + r]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] = hn::MulAdd(a, b[c], sum[r][c]);
    }
  }
  if (factor != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VF f = hn::Set(df, factor[r]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        sum[r][c] = hn::MulAdd(hn::Load(df, o + r * o_stride + c * kLanes), f, sum[r][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) hn::Store(sum[r][c], df, o + r * o_stride + c * kLanes);
  }
}

// A table of instantiations, indexed [R - 1][C - 1].
template <typename Function>
using BlockTable = std::array<std::array<Function*, 4>, kBlockRows>;

// What is instantiated: every R up to kBlockRows, every C up to kBlockVectors.
#undef ATTNLAB_BLOCK_ROW
#undef ATTNLAB_BLOCK_TABLE
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
#define ATTNLAB_BLOCK_ROW(Block, R) \
  { Block<R, 1>, Block<R, 2>, Block<R, 3>, Block<R, 4> }
#else
#define ATTNLAB_BLOCK_ROW(Block, R) \
  { Block<R, 1>, Block<R, 2>, nullptr, nullptr }
#endif
#define ATTNLAB_BLOCK_TABLE(Block)                                                              \
  {                                                                                             \
    {                                                                                           \
      ATTNLAB_BLOCK_ROW(Block, 1), ATTNLAB_BLOCK_ROW(Block, 2), ATTNLAB_BLOCK_ROW(Block, 3),    \
          ATTNLAB_BLOCK_ROW(Block, 4), ATTNLAB_BLOCK_ROW(Block, 5), ATTNLAB_BLOCK_ROW(Block, 6) \
    }                                                                                           \
  }

}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTENTION_CPU_MATMUL_INL_H_
