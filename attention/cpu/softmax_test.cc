// The online softmax against one in double precision over all keys at once, on every instruction
// set of this machine.
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
#define HWY_TARGET_INCLUDE "attention/cpu/softmax_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "attention/cpu/few_rows-inl.h"
#include "attention/cpu/softmax-inl.h"
#include "hwy/tests/hwy_gtest.h"

HWY_BEFORE_NAMESPACE();
namespace attnlab::cpu::HWY_NAMESPACE {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kStride = 2 * kLanes;

// kLanes rows, and the weights of the keys added so far. Those are P as the caller would have them,
// with older ones multiplied by each factor.
struct Rows {
  HWY_ALIGN float m[kLanes];
  HWY_ALIGN float sum[kLanes];
  HWY_ALIGN float factor[kLanes];
  std::vector<double> weights[kLanes];

  Rows() {
    std::fill(m, m + kLanes, kNone);
    std::fill(sum, sum + kLanes, 0.0f);
  }

  void TakeWeights(const float* p, int64_t begin, int64_t end) {
    for (int64_t r = 0; r < kLanes; ++r) {
      for (double& w : weights[r]) w *= factor[r];
      for (int64_t j = begin; j < end; ++j) weights[r].push_back(p[j * kStride + r]);
    }
  }
};

// Scores of key j and row r, in base 2, with large jumps of the maximum on the way.
float Score(int64_t j, int64_t r) {
  std::mt19937 generator(static_cast<uint32_t>(j * 64 + r));
  return std::uniform_real_distribution<float>(-8, 8)(generator) +
         (j % 41 == 40 ? static_cast<float>(j) : 0.0f);
}

void ExpectSoftmax(const std::vector<float>& scores, float m, float sum,
                   const std::vector<double>& weights) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double exact_sum = 0;
  for (float s : scores) exact_sum += std::exp2(s - max);
  EXPECT_EQ(m, max);
  EXPECT_NEAR(sum, exact_sum, 1e-6 * exact_sum);
  ASSERT_EQ(weights.size(), scores.size());
  for (size_t j = 0; j < scores.size(); ++j) {
    EXPECT_NEAR(weights[j] / sum, std::exp2(scores[j] - max) / exact_sum, 1e-6);
  }
}

void TilesMerge() {
  Rows rows;
  std::vector<float> scores[kLanes];
  int64_t key = 0;
  for (int64_t count : {5, 1, 4, 64, 3, 128, 47}) {
    hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(count * kStride);
    for (int64_t j = 0; j < count; ++j, ++key) {
      for (int64_t r = 0; r < kLanes; ++r) {
        s[j * kStride + r] = Score(key, r);
        scores[r].push_back(Score(key, r));
      }
    }
    SoftmaxColumn(s.get(), kStride, 0, count, AllVisible(), rows.m, rows.sum, rows.factor);
    rows.TakeWeights(s.get(), 0, count);
  }
  for (int64_t r = 0; r < kLanes; ++r) {
    ExpectSoftmax(scores[r], rows.m[r], rows.sum[r], rows.weights[r]);
  }
}

// Row r sees keys [r, r + 7) of 40. Scores that it does not see are NaN here and must not matter.
void MaskedRows() {
  constexpr int64_t kKeys = 40;
  Rows rows;
  HWY_ALIGN float begin[kLanes];
  HWY_ALIGN float end[kLanes];
  hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(kKeys * kStride);
  std::vector<float> scores[kLanes];
  for (int64_t r = 0; r < kLanes; ++r) {
    begin[r] = static_cast<float>(r);
    end[r] = static_cast<float>(r + 7);
    for (int64_t j = 0; j < kKeys; ++j) {
      const bool visible = j >= r && j < r + 7;
      s[j * kStride + r] = visible ? Score(j, r) : kNan;
      scores[r].push_back(visible ? Score(j, r) : kNone);
    }
  }
  const F df;
  SoftmaxColumn(s.get(), kStride, 0, kKeys, SomeVisible{hn::Load(df, begin), hn::Load(df, end)},
                rows.m, rows.sum, rows.factor);
  rows.TakeWeights(s.get(), 0, kKeys);
  for (int64_t r = 0; r < kLanes; ++r) {
    ExpectSoftmax(scores[r], rows.m[r], rows.sum[r], rows.weights[r]);
  }
}

// A tile of which a row sees nothing changes nothing, whether it comes first or later.
void NothingVisible() {
  const F df;
  const SomeVisible none{hn::Zero(df), hn::Zero(df)};
  Rows rows;
  hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(4 * kStride);
  std::fill(s.get(), s.get() + 4 * kStride, kNan);
  SoftmaxColumn(s.get(), kStride, 0, 4, none, rows.m, rows.sum, rows.factor);
  for (int64_t r = 0; r < kLanes; ++r) {
    EXPECT_EQ(rows.m[r], kNone);
    EXPECT_EQ(rows.sum[r], 0.0f);
    for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(s[j * kStride + r], 0.0f);
  }
  std::fill(s.get(), s.get() + 4 * kStride, 3.0f);
  SoftmaxColumn(s.get(), kStride, 0, 4, AllVisible(), rows.m, rows.sum, rows.factor);
  SoftmaxColumn(s.get(), kStride, 0, 4, none, rows.m, rows.sum, rows.factor);
  for (int64_t r = 0; r < kLanes; ++r) {
    EXPECT_EQ(rows.m[r], 3.0f);
    EXPECT_EQ(rows.sum[r], 4.0f);
    EXPECT_EQ(rows.factor[r], 1.0f);
  }
}

void NanReachesItsRowAlone() {
  constexpr int64_t kKeys = 9;
  for (int64_t bad = 0; bad < kKeys; ++bad) {
    hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(kKeys * kStride);
    std::fill(s.get(), s.get() + kKeys * kStride, 1.0f);
    const int64_t row = bad % kLanes;
    s[bad * kStride + row] = kNan;
    Rows fresh;
    SoftmaxColumn(s.get(), kStride, 0, kKeys, AllVisible(), fresh.m, fresh.sum, fresh.factor);
    for (int64_t r = 0; r < kLanes; ++r) EXPECT_EQ(std::isnan(fresh.sum[r]), r == row) << bad;
  }
}

// A row's bits must not depend on where its first key lies in the tile: masked and aligned tiles of
// queries give the same bits.
void BitsDoNotDependOnTheMaskedPart() {
  constexpr int64_t kKeys = 37;
  const F df;
  for (int64_t begin = 0; begin < kKeys; ++begin) {
    hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(kKeys * kStride);
    hwy::AlignedFreeUniquePtr<float[]> t = hwy::AllocateAligned<float>(kKeys * kStride);
    for (int64_t j = 0; j < kKeys; ++j) {
      for (int64_t r = 0; r < kLanes; ++r) s[j * kStride + r] = t[j * kStride + r] = Score(j, r);
    }
    Rows a, b;
    const SomeVisible from{hn::Set(df, static_cast<float>(begin)),
                           hn::Set(df, static_cast<float>(kKeys))};
    SoftmaxColumn(s.get(), kStride, 0, kKeys, from, a.m, a.sum, a.factor);
    SoftmaxColumn(t.get(), kStride, begin / kPartialSums * kPartialSums, kKeys, from, b.m, b.sum,
                  b.factor);
    for (int64_t r = 0; r < kLanes; ++r) {
      EXPECT_EQ(a.sum[r], b.sum[r]) << begin;
      EXPECT_EQ(a.m[r], b.m[r]) << begin;
    }
  }
}

// The softmax of few rows, with keys along memory.
void OneRow() {
  float m = kNone, sum = 0;
  std::vector<float> scores;
  std::vector<double> weights;
  int64_t key = 0;
  for (int64_t count : {3, 1, 64, 100, 17}) {
    hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(count + kLanes);
    std::fill(s.get(), s.get() + count + kLanes, kNan);
    for (int64_t j = 0; j < count; ++j, ++key) {
      s[j] = Score(key, 0);
      scores.push_back(s[j]);
    }
    const float factor = SoftmaxRow(s.get(), count, &m, &sum);
    for (double& w : weights) w *= factor;
    weights.insert(weights.end(), s.get(), s.get() + count);
  }
  ExpectSoftmax(scores, m, sum, weights);
}

void Caps() {
  hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(3 * kStride);
  for (int64_t i = 0; i < 3 * kStride; ++i) s[i] = static_cast<float>(i - 40) * 0.1f;
  CapScores(s.get(), kStride, 1, 2, 30.0f);
  for (int64_t i = 0; i < 3 * kStride; ++i) {
    const float before = static_cast<float>(i - 40) * 0.1f;
    const bool inside = i >= kStride && i < kStride + kLanes;
    EXPECT_NEAR(s[i], inside ? 30 * std::tanh(before) : before, 1e-5) << i;
  }
}

// All numbers of fp8_e4m3 from 0 to 256, those halfway between, and their neighbours.
void RoundsWeights() {
  std::vector<float> weights = {0, kNan};
  for (uint8_t bits = 0; bits < 0x78; ++bits) {
    const float number = internal::E4m3ToFloat(bits), next = internal::E4m3ToFloat(bits + 1);
    for (const float w : {number, (number + next) / 2}) {
      for (const float to : {0.0f, w, 1000.0f}) weights.push_back(std::nextafter(w, to) / 256);
    }
  }
  while (weights.size() % kLanes != 0) weights.push_back(1);
  hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(weights.size());
  std::copy(weights.begin(), weights.end(), s.get());
  RoundWeights(s.get(), kLanes, 0, static_cast<int64_t>(weights.size()) / kLanes);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto expected = static_cast<float>(Float8E4M3(weights[i] * 256)) / 256;
    EXPECT_TRUE(s[i] == expected || (std::isnan(s[i]) && std::isnan(expected))) << weights[i];
  }
}

void ScalesKeys() {
  const std::vector<float> scales = {1, -1, 2, -1, 3};  // every second one is another head's
  const BlockScales blocks = {scales.data(), /*block_stride=*/2, /*head_stride=*/1, /*rows=*/64};
  hwy::AlignedFreeUniquePtr<float[]> s = hwy::AllocateAligned<float>(6 * kStride);
  std::fill(s.get(), s.get() + 6 * kStride, 1.0f);
  ScaleKeys(s.get(), kStride, 1, 5, blocks, /*origin=*/125);
  for (int64_t j = 0; j < 6; ++j) {
    const float expected = j == 0 || j == 5 ? 1.0f : j < 3 ? 2.0f : 3.0f;
    for (int64_t r = 0; r < kStride; ++r) {
      EXPECT_EQ(s[j * kStride + r], r < kLanes ? expected : 1.0f) << j;
    }
  }
}

}  // namespace
}  // namespace attnlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnlab::cpu {
HWY_BEFORE_TEST(SoftmaxTest);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, TilesMerge);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, MaskedRows);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, NothingVisible);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, NanReachesItsRowAlone);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, BitsDoNotDependOnTheMaskedPart);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, OneRow);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, Caps);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, RoundsWeights);
HWY_EXPORT_AND_TEST_P(SoftmaxTest, ScalesKeys);
}  // namespace attnlab::cpu
#endif  // HWY_ONCE
