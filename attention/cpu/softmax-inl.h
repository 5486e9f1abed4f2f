// The online softmax on a panel of transposed scores: Sᵀ[key][row], in base 2.
//
// Each row keeps the largest score so far, m, and the sum of 2^(s - m) (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018). A tile with a larger score raises m. The
// earlier sum is then multiplied by 2^(m before - m after), and the caller multiplies O by it.
//
// Rows lie along the lanes of a vector and keys along memory, so maxima and sums need no step
// across lanes. There are four partial sums, by key modulo 4 from the start of the tile. So a row
// has the same bits wherever its tile of queries begins.
//
// Included once for each target, inside the file that dispatches.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "attention/cpu/exp-inl.h"
#include "attention/cpu/targets.h"
#include "attention/cpu/tile.h"
#include "hwy/highway.h"

#if defined(ATTENTION_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CPU_SOFTMAX_INL_H_
#undef ATTENTION_CPU_SOFTMAX_INL_H_
#else
#define ATTENTION_CPU_SOFTMAX_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {

// The softmax is computed with 2^x: scores are multiplied by log2(e), as part of Q.
constexpr float kLog2E = 1.44269504088896341f;

constexpr int64_t kPartialSums = 4;

// The softcap: replaces each vector of scores s[j * stride], j in [begin, end), by outer * tanh(s).
// Scores come divided by the cap; `outer` is cap * log2(e).
HWY_INLINE void CapScores(float* s, int64_t stride, int64_t begin, int64_t end, float outer) {
  const F df;
  for (int64_t j = begin; j < end; ++j) {
    hn::Store(hn::Mul(Tanh(hn::Load(df, s + j * stride)), hn::Set(df, outer)), df, s + j * stride);
  }
}

// Multiplies vectors of scores, or of weights, s[j * stride], j in [begin, end), by the scale of key
// origin + j.
HWY_INLINE void ScaleKeys(float* s, int64_t stride, int64_t begin, int64_t end,
                          const BlockScales& scales, int64_t origin) {
  const F df;
  for (int64_t j = begin; j < end; ++j) {
    const VF scale = hn::Set(df, scales.At(origin + j));
    hn::Store(hn::Mul(hn::Load(df, s + j * stride), scale), df, s + j * stride);
  }
}

// Rounds weights from 0 to 1, s[j * stride], to multiples of 1/256 of fp8_e4m3, as kernels do that
// multiply P in fp8: its largest number is then 1, its smallest normal one 2^-14. To nearest, ties to
// even.
HWY_INLINE void RoundWeights(float* s, int64_t stride, int64_t begin, int64_t end) {
  const F df;
  const hn::RebindToUnsigned<F> du;
  const VF magic = hn::Set(df, 96.0f);  // whose last bit is 2^-17, as that of smaller numbers
  for (int64_t j = begin; j < end; ++j) {
    const VF p = hn::Load(df, s + j * stride);
    // Of a float's 23 bits of mantissa, 3 remain.
    const auto bits = hn::BitCast(du, p);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1));
    const auto up = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFF)));
    const VF normal = hn::BitCast(df, hn::And(up, hn::Set(du, 0xFFF00000)));
    const VF denormal = hn::Sub(hn::Add(p, magic), magic);
    const VF rounded = hn::IfThenElse(hn::Lt(p, hn::Set(df, 0x1p-14f)), denormal, normal);
    hn::Store(hn::IfThenElse(hn::Eq(p, p), rounded, p), df, s + j * stride);  // NaN stays
  }
}

// m if it is a number that can be subtracted; 0 if no key was seen, so that -inf - m is not NaN.
HWY_INLINE VF Subtrahend(VF m) {
  const F df;
  const VF none = hn::Set(df, -std::numeric_limits<float>::infinity());
  return hn::IfThenZeroElse(hn::Eq(m, none), m);
}

// Which keys of the tile each of kLanes rows sees: [begin, end), from the start of the tile.
// Whole numbers, as floats.
struct AllVisible {
  HWY_INLINE VF Apply(int64_t, VF s) const { return s; }
};
struct SomeVisible {
  VF begin, end;
  HWY_INLINE VF Apply(int64_t j, VF s) const {
    const F df;
    const VF key = hn::Set(df, static_cast<float>(j));
    const auto visible = hn::And(hn::Ge(key, begin), hn::Lt(key, end));
    return hn::IfThenElse(visible, s, hn::Set(df, -std::numeric_limits<float>::infinity()));
  }
};

// One vector of rows. Replaces scores s[j * stride], j in [begin, end), by 2^(s - m); `begin` is a
// multiple of kPartialSums. Updates m[kLanes] and sum[kLanes], and writes to factor[kLanes] the
// factor that the sum was multiplied by, which the caller must apply to O. Scores that the rows do
// not see may be anything; they become 0.
template <class Visible>
void SoftmaxColumn(float* HWY_RESTRICT s, int64_t stride, int64_t begin, int64_t end,
                   const Visible& visible, float* HWY_RESTRICT m, float* HWY_RESTRICT sum,
                   float* HWY_RESTRICT factor) {
  const F df;
  const VF before = hn::Load(df, m);
  const int64_t whole = begin + (end - begin) / kPartialSums * kPartialSums;

  VF max0 = before, max1 = before, max2 = before, max3 = before;
  int64_t j = begin;
  for (; j < whole; j += kPartialSums) {
    const float* row = s + j * stride;
    max0 = hn::Max(max0, visible.Apply(j, hn::Load(df, row)));
    max1 = hn::Max(max1, visible.Apply(j + 1, hn::Load(df, row + stride)));
    max2 = hn::Max(max2, visible.Apply(j + 2, hn::Load(df, row + 2 * stride)));
    max3 = hn::Max(max3, visible.Apply(j + 3, hn::Load(df, row + 3 * stride)));
  }
  for (; j < end; ++j) max0 = hn::Max(max0, visible.Apply(j, hn::Load(df, s + j * stride)));
  const VF after = hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
  const VF subtrahend = Subtrahend(after);

  const auto exponentiate = [&](int64_t key) HWY_ATTR {
    float* at = s + key * stride;
    const VF p = Exp2(hn::Sub(visible.Apply(key, hn::Load(df, at)), subtrahend));
    hn::Store(p, df, at);
    return p;
  };
  VF sum0 = hn::Zero(df), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (j = begin; j < whole; j += kPartialSums) {
    sum0 = hn::Add(sum0, exponentiate(j));
    sum1 = hn::Add(sum1, exponentiate(j + 1));
    sum2 = hn::Add(sum2, exponentiate(j + 2));
    sum3 = hn::Add(sum3, exponentiate(j + 3));
  }
  if (j < end) sum0 = hn::Add(sum0, exponentiate(j++));
  if (j < end) sum1 = hn::Add(sum1, exponentiate(j++));
  if (j < end) sum2 = hn::Add(sum2, exponentiate(j++));

  const VF rescale = Exp2(hn::Sub(before, subtrahend));
  const VF added = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  hn::Store(hn::MulAdd(hn::Load(df, sum), rescale, added), df, sum);
  hn::Store(after, df, m);
  hn::Store(rescale, df, factor);
}

}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTENTION_CPU_SOFTMAX_INL_H_
