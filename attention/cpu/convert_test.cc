// Conversions and copies against dtype.h and plain loops, on every instruction set of this
// machine.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/core/dtype.h"
#include "attention/cpu/targets.h"
#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/convert_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/convert-inl.h"
#include "hwy/tests/hwy_gtest.h"

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
void ExpectLoadsEveryValue() {
  for (uint32_t first = 0; first < uint32_t{1} << (8 * sizeof(T)); first += kLanes) {
    T in[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) in[i].bits = static_cast<decltype(T::bits)>(first + i);
    HWY_ALIGN float out[kLanes];
    hn::Store(LoadFloats(in), F(), out);
    for (int64_t i = 0; i < kLanes; ++i) {
      const float expected = static_cast<float>(in[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(out[i])) << in[i].bits;
      } else {
        EXPECT_EQ(internal::FloatBits(out[i]), internal::FloatBits(expected)) << in[i].bits;
      }
    }
  }
}

void LoadsEveryHalf() { ExpectLoadsEveryValue<Float16>(); }
void LoadsEveryBFloat16() { ExpectLoadsEveryValue<BFloat16>(); }
void LoadsEveryFloat8() {
  ExpectLoadsEveryValue<Float8E4M3>();
  ExpectLoadsEveryValue<Float8E5M2>();
}

template <typename T>
void ExpectStoresLikeScalar() {
  // All exponents, with mantissas at and near the ties of both types.
  for (uint32_t exponent = 0; exponent < 512; ++exponent) {
    for (uint32_t mantissa : {0u, 1u, 0xFFFu, 0x1000u, 0x1001u, 0x2FFFu, 0x3000u, 0x7FFFu, 0x8000u,
                              0x8001u, 0x17FFFu, 0x18000u, 0x7FE000u, 0x7FF000u, 0x7FFFFFu}) {
      const float x = internal::FloatFromBits(exponent << 23 | mantissa);
      T out[kLanes];
      StoreFloats(hn::Set(F(), x), out);
      const T expected(x);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(static_cast<float>(out[0])));
      } else {
        EXPECT_EQ(out[0].bits, expected.bits) << std::hexfloat << x;
      }
      EXPECT_EQ(out[kLanes - 1].bits, out[0].bits);
    }
  }
}

void StoresHalfLikeScalar() { ExpectStoresLikeScalar<Float16>(); }
void StoresBFloat16LikeScalar() { ExpectStoresLikeScalar<BFloat16>(); }

// Rows of every length: copies are right, and what follows a row is neither read into the copy nor
// written.
template <typename T>
void ExpectRowsOfEveryLength() {
  for (int64_t dim = 1; dim <= 2 * kLanes + 3; ++dim) {
    std::vector<T> row(dim);  // exactly dim, so that a sanitizer sees a read beyond it
    for (int64_t i = 0; i < dim; ++i) row[i] = T(static_cast<float>(i + 1));
    const int64_t padded = (dim + kLanes - 1) / kLanes * kLanes;
    hwy::AlignedFreeUniquePtr<float[]> floats = hwy::AllocateAligned<float>(padded + 1);
    std::fill(floats.get(), floats.get() + padded + 1, kNan);
    LoadRow(row.data(), 0.5f, dim, floats.get());
    for (int64_t i = 0; i < padded; ++i) {
      EXPECT_EQ(floats[i], i < dim ? 0.5f * static_cast<float>(i + 1) : 0.0f) << dim << " " << i;
    }
    EXPECT_TRUE(std::isnan(floats[padded]));

    std::vector<T> out(dim + 1, T(-7.0f));
    StoreRow(floats.get(), 2.0f, dim, out.data());
    for (int64_t i = 0; i < dim; ++i) {
      EXPECT_EQ(static_cast<float>(out[i]), static_cast<float>(i + 1)) << dim << " " << i;
    }
    EXPECT_EQ(static_cast<float>(out[dim]), -7.0f) << dim;
  }
}

void RowsOfEveryLength() {
  ExpectRowsOfEveryLength<float>();
  ExpectRowsOfEveryLength<Float16>();
  ExpectRowsOfEveryLength<BFloat16>();
}

void PacksPanels() {
  const int64_t keys = 5;
  const int64_t width = 4 * kLanes;
  for (int64_t dim : {int64_t{1}, kLanes, kLanes + 1, width - 1, width, width + 1, 3 * width - 2}) {
    const int64_t stride = dim + 3;
    // NaN in the gaps between rows.
    std::vector<BFloat16> in((keys - 1) * stride + dim, BFloat16(kNan));
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t i = 0; i < dim; ++i) {
        in[j * stride + i] = BFloat16(static_cast<float>((j * 31 + i) % 200));
      }
    }
    const int64_t panels = (dim + width - 1) / width;
    hwy::AlignedFreeUniquePtr<float[]> out = hwy::AllocateAligned<float>(panels * keys * width);
    std::fill(out.get(), out.get() + panels * keys * width, -1.0f);
    PackRows(in.data(), stride, keys, dim, width, keys * width, out.get());
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t i = 0; i < panels * width; ++i) {
        const float value = out[(i / width * keys + j) * width + i % width];
        const int64_t padded = (dim + kLanes - 1) / kLanes * kLanes;
        const float expected = i < dim      ? static_cast<float>((j * 31 + i) % 200)
                               : i < padded ? 0.0f
                                            : -1.0f;
        EXPECT_EQ(value, expected) << "dim " << dim << " key " << j << " column " << i;
      }
    }
  }
}

void Transposes() {
  for (int64_t d : {1, 3, 64, 67}) {
    const int64_t stride = d + 5;
    std::vector<float> in(kLanes * stride, kNan);
    for (int64_t r = 0; r < kLanes; ++r) {
      for (int64_t i = 0; i < d; ++i) in[r * stride + i] = static_cast<float>(r * 1000 + i);
    }
    const int64_t to_stride = 2 * kLanes;
    hwy::AlignedFreeUniquePtr<float[]> out = hwy::AllocateAligned<float>(d * to_stride);
    std::fill(out.get(), out.get() + d * to_stride, -1.0f);
    TransposeRows(in.data(), stride, d, out.get(), to_stride);
    for (int64_t i = 0; i < d; ++i) {
      for (int64_t r = 0; r < to_stride; ++r) {
        EXPECT_EQ(out[i * to_stride + r], r < kLanes ? static_cast<float>(r * 1000 + i) : -1.0f);
      }
    }
  }
}

}  // namespace
}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnlab::cpu {
HWY_BEFORE_TEST(ConvertTest);
HWY_EXPORT_AND_TEST_P(ConvertTest, LoadsEveryHalf);
HWY_EXPORT_AND_TEST_P(ConvertTest, LoadsEveryBFloat16);
HWY_EXPORT_AND_TEST_P(ConvertTest, LoadsEveryFloat8);
HWY_EXPORT_AND_TEST_P(ConvertTest, StoresHalfLikeScalar);
HWY_EXPORT_AND_TEST_P(ConvertTest, StoresBFloat16LikeScalar);
HWY_EXPORT_AND_TEST_P(ConvertTest, RowsOfEveryLength);
HWY_EXPORT_AND_TEST_P(ConvertTest, PacksPanels);
HWY_EXPORT_AND_TEST_P(ConvertTest, Transposes);
}  // namespace attnlab::cpu
#endif  // HWY_ONCE
