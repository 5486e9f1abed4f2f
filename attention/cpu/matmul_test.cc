// Every instantiation of the two products against plain loops, on every instruction set of this
// machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "attention/cpu/targets.h"
#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/matmul_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/few_rows-inl.h"
#include "attention/cpu/panels-inl.h"
#include "hwy/tests/hwy_gtest.h"

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {
namespace {

using Floats = hwy::AlignedFreeUniquePtr<float[]>;

Floats Filled(int64_t count, float value) {
  Floats floats = hwy::AllocateAligned<float>(count);
  std::fill(floats.get(), floats.get() + count, value);
  return floats;
}

Floats Random(int64_t count, int seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  Floats floats = hwy::AllocateAligned<float>(count);
  for (int64_t i = 0; i < count; ++i) floats[i] = values(generator);
  return floats;
}

// Tolerance for a sum of `terms` products of numbers up to 1.
double Bound(int64_t terms) { return 1e-7 * static_cast<double>(terms + 1); }

void Scores() {
  for (int64_t d : {1, 2, 7, 64}) {
    for (int64_t rows = 1; rows <= kBlockRows; ++rows) {
      for (int64_t vectors = 1; vectors <= kBlockVectors; ++vectors) {
        const int64_t width = vectors * kLanes;
        const int64_t k_stride = d + 3, q_stride = width + kLanes, s_stride = width + kLanes;
        const Floats k = Random(rows * k_stride, 1);
        const Floats q = Random(d * q_stride, 2);
        Floats s = Filled((rows + 1) * s_stride, -77);
        kScoresBlock[rows - 1][vectors - 1](k.get(), k_stride, q.get(), q_stride, d, s.get(),
                                            s_stride);
        for (int64_t r = 0; r <= rows; ++r) {
          for (int64_t c = 0; c < s_stride; ++c) {
            const float value = s[r * s_stride + c];
            if (r == rows || c >= width) {
              EXPECT_EQ(value, -77) << "written beyond the block";
              continue;
            }
            double expected = 0;
            for (int64_t i = 0; i < d; ++i) {
              expected += double{k[r * k_stride + i]} * q[i * q_stride + c];
            }
            EXPECT_NEAR(value, expected, Bound(d)) << rows << "x" << vectors << " d " << d;
          }
        }
      }
    }
  }
}

// With and without an earlier sum, and with and without an O to rescale.
void ExpectOutputs(int64_t keys, int64_t rows, int64_t vectors, bool has_t, bool has_factor) {
  const int64_t width = vectors * kLanes;
  const int64_t p_stride = rows + 2, v_stride = width + kLanes, stride = width + kLanes;
  const Floats p = Random(keys * p_stride, 1);
  const Floats v = Random(keys * v_stride, 2);
  const Floats factor = Random(rows, 3);
  const Floats before = Random((rows + 1) * stride, 4);
  const Floats t = Random((rows + 1) * stride, 5);
  Floats o = hwy::AllocateAligned<float>((rows + 1) * stride);
  std::copy(before.get(), before.get() + (rows + 1) * stride, o.get());
  kOutputsBlock[rows - 1][vectors - 1](p.get(), p_stride, v.get(), v_stride, keys,
                                       has_t ? t.get() : nullptr, stride,
                                       has_factor ? factor.get() : nullptr, o.get(), stride);
  for (int64_t r = 0; r <= rows; ++r) {
    for (int64_t c = 0; c < stride; ++c) {
      const int64_t at = r * stride + c;
      if (r == rows || c >= width) {
        EXPECT_EQ(o[at], before[at]) << "written beyond the block";
        continue;
      }
      double expected = (has_t ? t[at] : 0.0) + (has_factor ? double{factor[r]} * before[at] : 0.0);
      for (int64_t j = 0; j < keys; ++j) {
        expected += double{p[j * p_stride + r]} * v[j * v_stride + c];
      }
      EXPECT_NEAR(o[at], expected, Bound(keys)) << rows << "x" << vectors;
    }
  }
}

void Outputs() {
  for (int64_t keys : {1, 2, 5, 64}) {
    for (int64_t rows = 1; rows <= kBlockRows; ++rows) {
      for (int64_t vectors = 1; vectors <= kBlockVectors; ++vectors) {
        for (bool has_t : {false, true}) {
          for (bool has_factor : {false, true}) {
            ExpectOutputs(keys, rows, vectors, has_t, has_factor);
          }
        }
      }
    }
  }
}

template <int R, int J>
void ExpectDots() {
  for (int64_t d : {int64_t{1}, kLanes - 1, kLanes, 3 * kLanes, 3 * kLanes + 1}) {
    if (d == 0) continue;
    const int64_t q_stride = (d + kLanes - 1) / kLanes * kLanes;
    const int64_t k_stride = d + 1;
    Floats q = Random(R * q_stride, 1);
    for (int r = 0; r < R; ++r) std::fill(&q[r * q_stride + d], &q[(r + 1) * q_stride], 0.0f);
    std::vector<float> k((J - 1) * k_stride + d);
    const Floats values = Random(J * d, 2);
    // The gaps between the rows of K hold what must not be multiplied, not even by zero.
    std::fill(k.begin(), k.end(), std::numeric_limits<float>::quiet_NaN());
    for (int j = 0; j < J; ++j) std::copy(&values[j * d], &values[j * d] + d, &k[j * k_stride]);
    const int64_t s_stride = J + 2;
    std::vector<float> s(R * s_stride, -77);
    Dots<R, J>(q.get(), q_stride, k.data(), k_stride, d, s.data(), s_stride);
    for (int r = 0; r < R; ++r) {
      for (int64_t j = 0; j < s_stride; ++j) {
        if (j >= J) {
          EXPECT_EQ(s[r * s_stride + j], -77);
          continue;
        }
        double expected = 0;
        for (int64_t i = 0; i < d; ++i)
          expected += double{q[r * q_stride + i]} * k[j * k_stride + i];
        EXPECT_NEAR(s[r * s_stride + j], expected, Bound(d)) << R << "x" << J << " d " << d;
      }
    }
  }
}

void DotProducts() {
  ExpectDots<1, 1>();
  ExpectDots<2, 1>();
  ExpectDots<3, 1>();
  ExpectDots<4, 1>();
  ExpectDots<1, kDotKeys>();
  ExpectDots<2, kDotKeys>();
  ExpectDots<3, kDotKeys>();
  ExpectDots<4, kDotKeys>();
}

template <int R, int C>
void ExpectValues() {
  for (int64_t tail : {int64_t{1}, kLanes}) {
    const int64_t keys = 9, columns = (C - 1) * kLanes + tail;
    const int64_t v_stride = columns + 2, p_stride = keys + 1, o_stride = C * kLanes;
    const Floats p = Random(R * p_stride, 1);
    const Floats v = Random((keys - 1) * v_stride + columns, 2);
    const Floats before = Random(R * o_stride, 3);
    const Floats factor = Random(R, 4);
    Floats o = hwy::AllocateAligned<float>(R * o_stride);
    std::copy(before.get(), before.get() + R * o_stride, o.get());
    TileTask task;
    task.kv_len = keys;
    task.v = {v.get(), v_stride};
    AddValues<R, C, float>(p.get(), p_stride, task, 0, keys, 0, tail, factor.get(), o.get(),
                           o_stride);
    for (int r = 0; r < R; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        double expected = double{factor[r]} * before[r * o_stride + c];
        for (int64_t j = 0; j < keys; ++j) {
          expected += double{p[r * p_stride + j]} * v[j * v_stride + c];
        }
        EXPECT_NEAR(o[r * o_stride + c], expected, Bound(keys)) << R << "x" << C;
      }
    }
  }
}

void ValuesOfFewRows() {
  ExpectValues<1, 1>();
  ExpectValues<2, 1>();
  ExpectValues<3, 1>();
  ExpectValues<4, 1>();
  ExpectValues<1, kOutputVectors>();
  ExpectValues<2, kOutputVectors>();
  ExpectValues<3, kOutputVectors>();
  ExpectValues<4, kOutputVectors>();
}

}  // namespace
}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnlab::cpu {
HWY_BEFORE_TEST(MatmulTest);
HWY_EXPORT_AND_TEST_P(MatmulTest, Scores);
HWY_EXPORT_AND_TEST_P(MatmulTest, Outputs);
HWY_EXPORT_AND_TEST_P(MatmulTest, DotProducts);
HWY_EXPORT_AND_TEST_P(MatmulTest, ValuesOfFewRows);
}  // namespace attnlab::cpu
#endif  // HWY_ONCE
