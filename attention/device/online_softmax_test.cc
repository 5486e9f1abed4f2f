#include "attention/device/online_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::device {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// O of one dim and the softmax state, over keys that come in tiles.
struct Row {
  OnlineSoftmax state;
  float o = 0;  // not yet divided by the sum
  bool lazily = false;
  float scale = 1;

  void Add(const std::vector<float>& scores, const std::vector<float>& v, size_t begin,
           size_t end) {
    float max = -kInfinity;
    for (size_t j = begin; j < end; ++j) max = std::max(max, scores[j]);
    o *= lazily ? state.GrowLazily(max, scale) : state.Grow(max, scale);
    for (size_t j = begin; j < end; ++j) {
      const float p = state.Weight(scores[j], scale);
      EXPECT_FALSE(p > (lazily ? 256 : 1)) << scores[j];
      state.sum += p;
      o += p * v[j];
    }
  }
};

struct Exact {
  double o = 0, lse = 0;
};

Exact ExactOf(const std::vector<float>& scores, const std::vector<float>& v) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  Exact exact;
  for (size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp2(scores[j] - max);
    sum += p;
    exact.o += p * v[j];
  }
  exact.o /= sum;
  exact.lse = (max + std::log2(sum)) * std::log(2.0);
  return exact;
}

class OnlineSoftmaxTest : public ::testing::Test {
 protected:
  OnlineSoftmaxTest() : scores_(257), v_(257) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& s : scores_) s = 20 * normal(random);
    for (float& x : v_) x = normal(random);
  }
  std::vector<float> scores_, v_;
};

TEST_F(OnlineSoftmaxTest, TilesGiveWhatTheWholeRowGives) {
  const Exact exact = ExactOf(scores_, v_);
  std::vector<float> halves = scores_;
  for (float& s : halves) s /= 2;
  for (const size_t tile : {1u, 7u, 64u, 256u, 1000u}) {
    for (const bool lazily : {false, true}) {
      for (const float scale : {1.0f, 2.0f}) {
        Row row;
        row.lazily = lazily;
        row.scale = scale;
        for (size_t j = 0; j < scores_.size(); j += tile) {
          row.Add(scale == 1 ? scores_ : halves, v_, j, std::min(scores_.size(), j + tile));
        }
        EXPECT_NEAR(row.o * row.state.Inverse(), exact.o, 2e-6) << tile;
        EXPECT_NEAR(row.state.Lse(), exact.lse, 1e-5) << tile;
      }
    }
  }
}

TEST_F(OnlineSoftmaxTest, HiddenTilesChangeNothing) {
  // Minus infinity first, in between and last, as masks leave it.
  std::vector<float> scores = {-kInfinity, -kInfinity, 1, 2, -kInfinity, -kInfinity, 3, -kInfinity};
  const std::vector<float> v = {9, 9, 1, 2, 9, 9, 3, 9};
  Row row;
  for (size_t j = 0; j < scores.size(); j += 2) row.Add(scores, v, j, j + 2);
  const Exact exact = ExactOf({1, 2, 3}, {1, 2, 3});
  EXPECT_NEAR(row.o * row.state.Inverse(), exact.o, 1e-6);
  EXPECT_NEAR(row.state.Lse(), exact.lse, 1e-6);
}

TEST_F(OnlineSoftmaxTest, ARowWithoutAKeyIsZero) {
  Row row;
  row.Add({-kInfinity, -kInfinity}, {1, 1}, 0, 2);
  row.Add({-kInfinity, -kInfinity}, {1, 1}, 0, 2);
  EXPECT_EQ(row.o * row.state.Inverse(), 0);
  EXPECT_EQ(row.state.Lse(), -kInfinity);
}

TEST_F(OnlineSoftmaxTest, FactorsAreOneOrZeroWhereNothingChanges) {
  OnlineSoftmax state;
  EXPECT_EQ(state.Grow(-kInfinity), 1);
  EXPECT_EQ(state.Grow(-3), 0);  // of sums that are 0
  state.sum = 1;
  EXPECT_EQ(state.Grow(-5), 1);
  EXPECT_EQ(state.Grow(-2), 0.5f);
  EXPECT_EQ(state.sum, 0.5f);
  EXPECT_EQ(state.Grow(1e30f), 0);
}

TEST_F(OnlineSoftmaxTest, LazilyTheMaximumMovesWhereAScoreExceedsItByFar) {
  OnlineSoftmax state;
  EXPECT_EQ(state.GrowLazily(-kInfinity), 1);
  EXPECT_EQ(state.GrowLazily(-1e30f), 0);
  EXPECT_EQ(state.GrowLazily(-2), 0);
  state.sum = 3;
  EXPECT_EQ(state.GrowLazily(6), 1);  // by 8
  EXPECT_EQ(state.neg_max, 2);
  EXPECT_EQ(state.GrowLazily(7), 1.0f / 512);  // by 9
  EXPECT_EQ(state.neg_max, -7);
  EXPECT_EQ(state.sum, 3.0f / 512);
  EXPECT_EQ(state.Weight(7), 1);
}

TEST_F(OnlineSoftmaxTest, TheLargestOfLargeWeightsBecomesOne) {
  OnlineSoftmax state;
  state.Grow(3);
  state.sum = 2;  // of keys whose scores are 3
  const float weight = state.Weight(100);
  const float factor = state.GrowTo(weight);
  EXPECT_FLOAT_EQ(weight * factor, 1);
  EXPECT_FLOAT_EQ(state.Weight(100), 1);
  state.sum += weight * factor;
  EXPECT_FLOAT_EQ(state.Lse(), 100 * std::log(2.0f));
  EXPECT_EQ(state.GrowTo(1), 1);
}

TEST_F(OnlineSoftmaxTest, NanReachesTheSum) {
  Row row;
  row.Add({1, std::nanf(""), 2}, {1, 1, 1}, 0, 3);
  EXPECT_TRUE(std::isnan(row.o * row.state.Inverse()));
  EXPECT_TRUE(std::isnan(row.state.Lse()));
}

TEST_F(OnlineSoftmaxTest, PartsMergeInAnyOrder) {
  const Exact exact = ExactOf(scores_, v_);
  for (const size_t cut : {0u, 1u, 100u, 256u, 257u}) {
    for (const bool swapped : {false, true}) {
      Row parts[2];
      parts[1].lazily = true;  // relative to another maximum
      parts[0].Add(scores_, v_, 0, cut);
      parts[1].Add(scores_, v_, cut, scores_.size());
      Row whole = parts[swapped];
      const Row& part = parts[!swapped];
      const auto f = whole.state.Merge(part.state);
      const float o = f.mine * whole.o + f.parts * part.o;
      EXPECT_NEAR(o * whole.state.Inverse(), exact.o, 2e-6) << cut;
      EXPECT_NEAR(whole.state.Lse(), exact.lse, 1e-5) << cut;

      // The same for O that is already divided by the sum.
      OnlineSoftmax divided = OnlineSoftmax::OfLse(parts[swapped].state.Lse());
      const auto g = divided.Merge(OnlineSoftmax::OfLse(part.state.Lse()));
      const float normalised = g.mine * parts[swapped].o * parts[swapped].state.Inverse() +
                               g.parts * part.o * part.state.Inverse();
      EXPECT_NEAR(normalised * divided.Inverse(), exact.o, 1e-5) << cut;
      EXPECT_NEAR(divided.Lse(), exact.lse, 1e-5) << cut;
    }
  }
  OnlineSoftmax nothing;
  nothing.Merge({});
  EXPECT_EQ(nothing.Lse(), -kInfinity);
  EXPECT_EQ(nothing.Inverse(), 0);
}

}  // namespace
}  // namespace attnlab::device
