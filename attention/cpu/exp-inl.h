// exp2 and tanh on vectors of floats.
//
// Included once for each target, inside the file that dispatches.
#include "attention/cpu/targets.h"
#include "hwy/highway.h"

#if defined(ATTENTION_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CPU_EXP_INL_H_
#undef ATTENTION_CPU_EXP_INL_H_
#else
#define ATTENTION_CPU_EXP_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using VF = hn::Vec<F>;

// Lanes of a vector of floats: 16 with AVX-512.
constexpr int64_t kLanes = hn::MaxLanes(F());

// 2^x for x below 127.5, within 2 units in the last place. Exactly 1 at 0. Zero below -126, where
// results would be denormal, and at minus infinity. NaN at NaN.
//
// x = n + f with n an integer and |f| <= 1/2. 2^f is a polynomial of degree 6 with the constant
// term 1. It was fitted for the smallest maximum relative error by Lawson's reweighted least
// squares, then rounded to float: 1.6e-8.
HWY_INLINE VF Exp2(VF x) {
  const F df;
#if HWY_TARGET <= HWY_AVX3
  // AVX-512 has instructions for both steps around the polynomial.
  const VF f{_mm512_reduce_ps(x.raw, 0)};
  const VF n = hn::Sub(x, f);
#else
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. The extra 127 is the bias
  // of the exponent, which a shift moves into place.
  const hn::RebindToSigned<F> di;
  const VF magic = hn::Set(df, 12582912.0f + 127.0f);
  const VF rounded = hn::Add(x, magic);
  const VF f = hn::Sub(x, hn::Sub(rounded, magic));
  const VF power = hn::BitCast(df, hn::ShiftLeft<23>(hn::BitCast(di, rounded)));
#endif
  VF p = hn::Set(df, 0x1.41fbbcp-13f);
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.5f3e52p-10f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.3b2d4cp-7f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.c6aee8p-5f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.ebfbdcp-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 0x1.62e430p-1f));
  p = hn::MulAdd(p, f, hn::Set(df, 1.0f));
  // Zero below -126 instead of denormal numbers, which are slow. NaN must remain; p has it.
#if HWY_TARGET <= HWY_AVX3
  const __mmask16 normal = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return VF{_mm512_maskz_scalef_ps(normal, p.raw, n.raw)};
#else
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -126.0f)), hn::Mul(p, power));
#endif
}

// tanh(x), within 3 units in the last place; NaN at NaN.
//
// Below 0.625 the odd polynomial of Cephes' tanhf (Moshier, netlib.org/cephes), relative to x so
// that small scores keep their precision; above it 1 - 2 / (exp(2x) + 1).
HWY_INLINE VF Tanh(VF x) {
  const F df;
  const VF a = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  VF p = hn::Set(df, -5.70498872745e-3f);
  p = hn::MulAdd(p, z, hn::Set(df, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(df, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(df, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(df, -3.33332819422e-1f));
  const VF small = hn::MulAdd(hn::Mul(p, z), x, x);
  // From 9.1 on, tanh is 1 in float. The minimum must not lose a NaN.
  const VF limit = hn::Set(df, 10.0f);
  const VF bounded = hn::IfThenElse(hn::Gt(a, limit), limit, a);
  const VF e = Exp2(hn::Mul(bounded, hn::Set(df, 2.885390082f)));  // 2 log2(e)
  const VF one = hn::Set(df, 1.0f);
  const VF large = hn::Sub(one, hn::Div(hn::Set(df, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(a, hn::Set(df, 0.625f)), small, hn::CopySignToAbs(large, x));
}

}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTENTION_CPU_EXP_INL_H_
