// Conversions between the tensors' element types and the floats that a tile computes with: loads,
// stores, and the copies of a tile of Q, K and V.
//
// Nothing here reads or writes beyond the `dim` elements of a row: the next element may be
// another head's, poison, or the end of the allocation.
//
// Included once for each target, inside the file that dispatches.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "attention/core/dtype.h"
#include "attention/cpu/exp-inl.h"
#include "attention/cpu/targets.h"
#include "hwy/highway.h"

#if defined(ATTENTION_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CPU_CONVERT_INL_H_
#undef ATTENTION_CPU_CONVERT_INL_H_
#else
#define ATTENTION_CPU_CONVERT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {

#undef ATTNLAB_NATIVE_HALF
#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
#define ATTNLAB_NATIVE_HALF 1  // instructions that convert, with the right rounding
#else
#define ATTNLAB_NATIVE_HALF 0
#endif

// kLanes elements from p, as floats; exact. p needs the alignment of an element.
HWY_INLINE VF LoadFloats(const float* p) { return hn::LoadU(F(), p); }

HWY_INLINE VF LoadFloats(const BFloat16* p) {
  const hn::RebindToUnsigned<F> du;
  const hn::Rebind<uint16_t, F> du16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(F(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE VF LoadFloats(const Float16* p) {
  const F df;
#if ATTNLAB_NATIVE_HALF
  const hn::Rebind<hwy::float16_t, F> dh;
  return hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  // The exponents of both types differ by 112, so multiplying by 2^112 converts numbers, and
  // normalises denormals too. Infinity and NaN have the exponent 31.
  const hn::RebindToUnsigned<F> du;
  const hn::Rebind<uint16_t, F> du16;
  const auto h = hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  const auto magnitude = hn::And(h, hn::Set(du, 0x7FFF));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(h, magnitude));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const VF finite = hn::Mul(hn::BitCast(df, shifted), hn::Set(df, 0x1p112f));
  const VF special = hn::BitCast(df, hn::Or(shifted, hn::Set(du, 0x7F800000)));
  const VF threshold = hn::BitCast(df, hn::Set(du, 0x7C00u << 13));
  // As floats, `shifted` are ordinary numbers, in the order of the halves.
  const VF value = hn::IfThenElse(hn::Ge(hn::BitCast(df, shifted), threshold), special, finite);
  return hn::Or(value, hn::BitCast(df, sign));
#endif
}

HWY_INLINE VF LoadFloats(const Float8E4M3* p) {
  const F df;
#if ATTNLAB_NATIVE_HALF
  // As bits of a half, the exponent is 8 less. Halves with the lowest exponent are not normalised
  // either, so multiplying by 2^8 converts all numbers.
  const hn::Rebind<hwy::float16_t, F> dh;
  const hn::RebindToSigned<decltype(dh)> di;
  const hn::Rebind<uint8_t, F> du8;
  const auto byte = hn::PromoteTo(di, hn::LoadU(du8, reinterpret_cast<const uint8_t*>(p)));
  // The shift to the right copies the sign into the highest bit of the exponent, too.
  const auto shifted = hn::ShiftRight<1>(hn::ShiftLeft<8>(byte));
  const auto half = hn::And(shifted, hn::Set(di, static_cast<int16_t>(0xBF80)));
  // Only the magnitude 0x7F, which is NaN, carries into that bit, and becomes a NaN by it.
  const auto carry = hn::And(hn::Add(half, hn::Set(di, 0x80)), hn::Set(di, 0x4000));
  return hn::Mul(hn::PromoteTo(df, hn::BitCast(dh, hn::Or(half, carry))), hn::Set(df, 256.0f));
#else
  HWY_ALIGN float values[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) values[i] = static_cast<float>(p[i]);
  return hn::Load(df, values);
#endif
}

HWY_INLINE VF LoadFloats(const Float8E5M2* p) {
#if ATTNLAB_NATIVE_HALF
  // The upper byte of a half.
  const hn::Rebind<hwy::float16_t, F> dh;
  const hn::Rebind<uint16_t, F> du16;
  const hn::Rebind<uint8_t, F> du8;
  const auto byte = hn::PromoteTo(du16, hn::LoadU(du8, reinterpret_cast<const uint8_t*>(p)));
  return hn::PromoteTo(F(), hn::BitCast(dh, hn::ShiftLeft<8>(byte)));
#else
  HWY_ALIGN float values[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) values[i] = static_cast<float>(p[i]);
  return hn::Load(F(), values);
#endif
}

// The first `count` < kLanes elements from p, zeros after them.
template <typename T>
HWY_INLINE VF LoadFloatsTail(const T* p, int64_t count) {
  T buffer[kLanes] = {};
  // GCC does not know that there is room for `count`.
  std::memcpy(static_cast<void*>(buffer), p, std::min(count, kLanes) * sizeof(T));
  return LoadFloats(buffer);
}

// The inverse of LoadFloats, rounding to nearest even.
HWY_INLINE void StoreFloats(VF x, float* p) { hn::StoreU(x, F(), p); }

HWY_INLINE void StoreFloats(VF x, BFloat16* p) {
  const hn::RebindToUnsigned<F> du;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<uint16_t, F> du16;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  const auto is_number = hn::RebindMask(du, hn::Eq(x, x));
  const auto result = hn::BitCast(di, hn::IfThenElse(is_number, rounded, quiet));
  hn::StoreU(hn::DemoteTo(du16, result), du16, reinterpret_cast<uint16_t*>(p));
}

HWY_INLINE void StoreFloats(VF x, Float16* p) {
#if ATTNLAB_NATIVE_HALF
  const hn::Rebind<hwy::float16_t, F> dh;
  hn::StoreU(hn::DemoteTo(dh, x), dh, reinterpret_cast<hwy::float16_t*>(p));
#else
  HWY_ALIGN float values[kLanes];
  hn::Store(x, F(), values);
  for (int64_t i = 0; i < kLanes; ++i) p[i] = Float16(values[i]);
#endif
}

// Stores factor * from[0, dim) to `to`. `from` is aligned and readable to a whole vector.
template <typename T>
void StoreRow(const float* from, float factor, int64_t dim, T* to) {
  const F df;
  const VF scale = hn::Set(df, factor);
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes)
    StoreFloats(hn::Mul(hn::Load(df, from + i), scale), to + i);
  if (i == dim) return;
  T buffer[kLanes];
  StoreFloats(hn::Mul(hn::Load(df, from + i), scale), buffer);
  std::memcpy(static_cast<void*>(to + i), buffer, (dim - i) * sizeof(T));
}

// Converts one row to floats, times `factor`, and pads it with zeros to a whole vector.
template <typename T>
HWY_INLINE void LoadRow(const T* from, float factor, int64_t dim, float* to) {
  const F df;
  const VF scale = hn::Set(df, factor);
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes)
    hn::Store(hn::Mul(LoadFloats(from + i), scale), df, to + i);
  if (i < dim) hn::Store(hn::Mul(LoadFloatsTail(from + i, dim - i), scale), df, to + i);
}

// LoadRow() and StoreRow() of row `offset` elements from `data`. Rows of Q and O are few, so the tiles
// need not be compiled for each of their types. O is fp32, fp16 or bf16.
HWY_INLINE void LoadRowOf(DType dtype, const void* data, int64_t offset, float factor, int64_t dim,
                          float* to) {
  const auto load = [&](const auto* from) HWY_ATTR { LoadRow(from + offset, factor, dim, to); };
  if (dtype == DType::kFloat32) return load(static_cast<const float*>(data));
  if (dtype == DType::kFloat16) return load(static_cast<const Float16*>(data));
  if (dtype == DType::kBFloat16) return load(static_cast<const BFloat16*>(data));
  load(static_cast<const Float8E4M3*>(data));
}

HWY_INLINE void StoreRowOf(DType dtype, const float* from, float factor, int64_t dim, void* data,
                           int64_t offset) {
  const auto store = [&](auto* to) HWY_ATTR { StoreRow(from, factor, dim, to + offset); };
  if (dtype == DType::kFloat32) return store(static_cast<float*>(data));
  if (dtype == DType::kFloat16) return store(static_cast<Float16*>(data));
  store(static_cast<BFloat16*>(data));
}

// Copies `keys` rows of `dim` elements to panels of `width` columns. Panels are [key][width],
// panel_stride apart. Columns beyond dim are zero up to a whole vector. A tile of V becomes panels
// that fit the first-level cache; a tile of K becomes a single panel.
template <typename T>
void PackRows(const T* from, int64_t stride, int64_t keys, int64_t dim, int64_t width,
              int64_t panel_stride, float* to) {
  const F df;
  for (int64_t j = 0; j < keys; ++j, from += stride, to += width) {
    float* panel = to;
    for (int64_t c = 0; c < dim; c += width, panel += panel_stride) {
      const int64_t end = std::min(dim - c, width);
      int64_t i = 0;
      for (; i + kLanes <= end; i += kLanes) hn::Store(LoadFloats(from + c + i), df, panel + i);
      if (i < end) hn::Store(LoadFloatsTail(from + c + i, end - i), df, panel + i);
    }
  }
}

// Transposes kLanes rows of d floats, `stride` apart, to vectors of one column each, to_stride
// apart.
HWY_INLINE void TransposeRows(const float* from, int64_t stride, int64_t d, float* to,
                              int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  (void)stride;
  for (int64_t i = 0; i < d; ++i) to[i * to_stride] = from[i];
#else
  const F df;
  const hn::RebindToSigned<F> di;
  const auto rows = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(stride)));
  for (int64_t i = 0; i < d; ++i) {
    hn::Store(hn::GatherIndex(df, from + i, rows), df, to + i * to_stride);
  }
#endif
}

}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTENTION_CPU_CONVERT_INL_H_
