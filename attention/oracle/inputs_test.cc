#include "attention/oracle/inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "attention/core/parallel.h"
#include "gtest/gtest.h"

namespace attnlab::conformance {
namespace {

oracle::Inputs Make(const std::string& line, const oracle::InputOptions& options = {}) {
  absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
  EXPECT_TRUE(problem.ok()) << problem.status();
  absl::StatusOr<oracle::Inputs> inputs = oracle::Inputs::Make(*problem, Device::Cpu(), options);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return *std::move(inputs);
}

float At(const ConstTensorView& t, int64_t b, int64_t s, int64_t h, int64_t i) {
  return LoadElement(t.data, t.dtype, t.Offset(b, s, h, i));
}

TEST(InputsTest, OneSeedGivesOneAttentionInEveryLayoutAndKindOfLengths) {
  const std::string line = "b=3,hq=2,sq=5,d=7,dtype=fp16";
  const oracle::Inputs fixed = Make(line);
  for (const char* lens :
       {"fixed", "packed", "padded", "fixed,page=1", "packed,page=4", "padded,page=16"}) {
    for (oracle::Layout layout : oracle::kAllLayouts) {
      oracle::InputOptions options;
      options.layout = layout;
      const std::string full = line + ",lens=" + lens;
      const AttentionProblem p = *AttentionProblem::Parse(full);
      if (!oracle::CheckLayout(layout, p).ok()) continue;
      const oracle::Inputs inputs = Make(full, options);
      const AttentionTensors& t = inputs.tensors();
      int64_t compared = 0;
      for (int64_t i = 0; i < 3; ++i) {
        const Sequence s = SequenceOf(p, t, i);
        EXPECT_EQ(s.kv_len, inputs.kv_lens()[i]);
        for (int64_t row = 0; row < s.kv_len; ++row) {
          for (int64_t h = 0; h < 2; ++h) {
            for (int64_t c = 0; c < 7; ++c, ++compared) {
              const KeyPlace place = PlaceOf(p, t, s, row);
              EXPECT_EQ(At(t.v, place.batch, place.row, h, c), At(fixed.tensors().v, i, row, h, c));
            }
          }
        }
      }
      EXPECT_GT(compared, 0) << full;
    }
  }
}

TEST(InputsTest, SeedsTensorsAndRowsDiffer) {
  const std::string line = "b=2,hq=2,sq=3,d=64,dtype=fp32";
  oracle::InputOptions options;
  options.seed = 1;
  const oracle::Inputs a = Make(line), b = Make(line, options);
  const AttentionTensors& t = a.tensors();
  EXPECT_NE(At(t.q, 0, 0, 0, 0), At(b.tensors().q, 0, 0, 0, 0));
  EXPECT_NE(At(t.q, 0, 0, 0, 0), At(t.k, 0, 0, 0, 0));
  EXPECT_NE(At(t.k, 0, 0, 0, 0), At(t.v, 0, 0, 0, 0));
  EXPECT_NE(At(t.q, 0, 0, 0, 0), At(t.q, 1, 0, 0, 0));
  EXPECT_NE(At(t.q, 0, 0, 0, 0), At(t.q, 0, 1, 0, 0));
  EXPECT_NE(At(t.q, 0, 0, 0, 0), At(t.q, 0, 0, 1, 0));
  EXPECT_NE(At(t.q, 0, 0, 0, 0), At(t.q, 0, 0, 0, 1));
}

TEST(InputsTest, ThreadsDoNotMatter) {
  // Large enough for several tasks. The bits must not depend on which thread makes them.
  const std::string line = "b=2,hq=2,sq=600,d=16,dtype=bf16";
  const oracle::Inputs a = Make(line);
  bool same = false;
  // Inside a parallel region, OpenMP gives a nested one a single thread.
  ParallelFor(1, 1, [&](int64_t, int) {
    const oracle::Inputs b = Make(line);
    const int64_t bytes = 2 * 2 * 600 * 16 * 2;
    same = std::equal(static_cast<const char*>(a.tensors().k.data),
                      static_cast<const char*>(a.tensors().k.data) + bytes,
                      static_cast<const char*>(b.tensors().k.data));
  });
  EXPECT_TRUE(same);
}

struct Moments {
  double mean = 0, variance = 0, least = 1e30, most = -1e30;
};

Moments MomentsOf(const ConstTensorView& t) {
  Moments m;
  const int64_t n = t.NumElements();
  for (int64_t i = 0; i < n; ++i) {
    const double x = LoadElement(t.data, t.dtype, i);
    m.mean += x / n;
    m.variance += x * x / n;
    m.least = std::min(m.least, x);
    m.most = std::max(m.most, x);
  }
  m.variance -= m.mean * m.mean;
  return m;
}

TEST(InputsTest, DistributionsAreWhatTheirNamesSay) {
  const std::string line = "b=1,hq=4,sq=500,d=64,dtype=fp32";
  oracle::InputOptions options;
  const auto moments = [&](oracle::Values values) {
    options.values = values;
    const oracle::Inputs inputs = Make(line, options);
    return std::pair(MomentsOf(inputs.tensors().q), MomentsOf(inputs.tensors().v));
  };
  // 128000 numbers: the standard errors of mean and variance are both 0.003.
  const auto [q, v] = moments(oracle::Values::kNormal);
  for (const Moments& m : {q, v}) {
    EXPECT_NEAR(m.mean, 0, 0.015);
    EXPECT_NEAR(m.variance, 1, 0.015);
    EXPECT_LT(m.most, 3.47);
    EXPECT_GT(m.most, 3);
    EXPECT_LT(m.least, -3);
  }
  EXPECT_NEAR(moments(oracle::Values::kUniform).second.variance, 1.0 / 3, 0.01);
  EXPECT_LT(moments(oracle::Values::kUniform).second.most, 1);
  EXPECT_GE(moments(oracle::Values::kUniform).second.least, -1);
  EXPECT_NEAR(moments(oracle::Values::kOutliers).second.variance, 1 + 99.0 / 64, 0.15);
  EXPECT_NEAR(moments(oracle::Values::kLargeScores).first.variance, 1600, 25);
  EXPECT_NEAR(moments(oracle::Values::kLargeScores).second.variance, 1, 0.015);
  EXPECT_EQ(moments(oracle::Values::kZeroQ).first.variance, 0);
  EXPECT_EQ(moments(oracle::Values::kConstantV).second.least, 1);
  EXPECT_EQ(moments(oracle::Values::kConstantV).second.most, 1);
}

TEST(InputsTest, WhatNoKernelMayReadIsNan) {
  oracle::InputOptions options;
  options.layout = oracle::Layout::kOdd;
  options.q_lens = {2, 0};
  options.kv_lens = {1, 4};
  const oracle::Inputs inputs =
      Make("b=2,hq=2,hkv=1,sq=3,skv=4,d=6,dtype=bf16,lens=padded", options);
  const AttentionTensors& t = inputs.tensors();
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_FALSE(std::isnan(At(t.q, 0, 1, 1, i)));
    EXPECT_TRUE(std::isnan(At(t.q, 0, 2, 0, i)));
    EXPECT_TRUE(std::isnan(At(t.q, 1, 0, 0, i)));
    EXPECT_FALSE(std::isnan(At(t.k, 0, 0, 0, i)));
    EXPECT_TRUE(std::isnan(At(t.k, 0, 1, 0, i)));
    EXPECT_TRUE(std::isnan(At(t.v, 0, 1, 0, i)));
    EXPECT_FALSE(std::isnan(At(t.v, 1, 3, 0, i)));
  }
  // A gap, and the fences.
  EXPECT_TRUE(std::isnan(At(t.q, 0, 0, 0, 6)));
  EXPECT_TRUE(std::isnan(At(t.q, 0, 0, 0, -1)));
  EXPECT_TRUE(std::isnan(At(t.q, 0, 0, 0, -oracle::kInputFence / 2)));
  EXPECT_TRUE(std::isnan(At(t.v, 1, 4, 0, 0)));
}

TEST(InputsTest, RandomLengthsHaveZeroOneAndTheMaximum) {
  const oracle::Inputs inputs = Make("b=64,hq=1,sq=50,skv=70,d=1,dtype=fp32,lens=packed");
  for (int32_t wanted : {0, 1, 50}) {
    EXPECT_GT(std::count(inputs.q_lens().begin(), inputs.q_lens().end(), wanted), 2) << wanted;
  }
  for (int32_t wanted : {0, 1, 70}) {
    EXPECT_GT(std::count(inputs.kv_lens().begin(), inputs.kv_lens().end(), wanted), 2) << wanted;
  }
  const AttentionTensors& t = inputs.tensors();
  ASSERT_EQ(t.cu_seqlens_q.count, 65);
  EXPECT_EQ(t.cu_seqlens_q.data[0], 0);
  EXPECT_EQ(t.cu_seqlens_q.data[64], t.q.shape[1]);
}

TEST(InputsTest, ChangesTheRowsItIsToldTo) {
  oracle::InputOptions options;
  options.q_lens = {4, 4};
  options.kv_lens = {3, 5};
  const std::string line = "b=2,hq=1,sq=4,skv=5,d=8,dtype=fp32,lens=packed";
  const oracle::Inputs original = Make(line, options);
  oracle::Inputs changed = Make(line, options);
  ASSERT_TRUE(changed.ChangeKv(0, 2, 99, oracle::Inputs::Fill::kOtherNumbers).ok());
  ASSERT_TRUE(changed.ChangeQ(1, 0, 1, oracle::Inputs::Fill::kNan).ok());
  for (int64_t row = 0; row < 8; ++row) {
    const bool same_k =
        At(original.tensors().k, 0, row, 0, 3) == At(changed.tensors().k, 0, row, 0, 3);
    EXPECT_EQ(same_k, row != 2) << row;
    const bool same_v =
        At(original.tensors().v, 0, row, 0, 3) == At(changed.tensors().v, 0, row, 0, 3);
    EXPECT_EQ(same_v, row != 2) << row;
    EXPECT_EQ(std::isnan(At(changed.tensors().q, 0, row, 0, 3)), row == 4) << row;
  }
}

TEST(InputsTest, RejectsWhatDoesNotFit) {
  AttentionProblem p = *AttentionProblem::Parse("b=2,hq=2,hkv=1,sq=3,d=4,lens=padded");
  oracle::InputOptions options;
  const auto message = [&] {
    return std::string(oracle::Inputs::Make(p, Device::Cpu(), options).status().message());
  };
  options.q_lens = {1};
  EXPECT_EQ(message(), "q_lens: has 1 entry, must have 2");
  options.q_lens = {1, 4};
  EXPECT_EQ(message(), "q_lens: entry 1 is 4, which is not in 0..3");
  options.q_lens.clear();
  options.layout = oracle::Layout::kQkv;
  EXPECT_EQ(message().substr(0, 12), "layout: qkv ");
  p.lens = Lengths::kFixed;
  p.hq = 1;
  EXPECT_EQ(message(), "");
  p.kv_dtype = DType::kFloat8E4M3;
  EXPECT_EQ(message().substr(0, 12), "layout: qkv ");
  p.kv_dtype = {};
  options = {};
  p.lens = Lengths::kFixed;
  options.kv_lens = {1, 1};
  EXPECT_EQ(message(), "kv_lens: is given, but lens=fixed");
  options = {};
  p.b = 0;
  EXPECT_EQ(message(), "b: 0 is not in 1..2147483647");
  p.b = 2;
  p.page = 2;
  EXPECT_EQ(message(), "");
  options.layout = oracle::Layout::kQkv;
  EXPECT_EQ(message().substr(0, 12), "layout: qkv ");
  options = {};
  p.page = int64_t{1} << 30;
  p.d = p.dv = 512;
  p.hq = p.hkv = int64_t{1} << 20;
  EXPECT_EQ(message(), "page: 5 pages of 1073741824 tokens have more than 2^60 bytes");
  p = *AttentionProblem::Parse("b=2,hq=1,sq=1,skv=2147483647,d=1,page=1");
  EXPECT_EQ(message(), "page: 1 takes 4294967297 pages, more than 2147483647");
}

TEST(InputsTest, AnFp8CacheHasScales) {
  const oracle::Inputs inputs = Make("b=3,hq=4,hkv=2,sq=2,skv=5,d=16,dtype=bf16,kvdtype=fp8_e4m3");
  const AttentionTensors& t = inputs.tensors();
  EXPECT_EQ(t.q.dtype, DType::kBFloat16);
  EXPECT_EQ(t.k.dtype, DType::kFloat8E4M3);
  EXPECT_EQ(t.v.dtype, DType::kFloat8E4M3);
  EXPECT_TRUE(std::isnan(At(t.k, 0, 0, 0, -1)));  // the fence
  std::set<float> scales;
  for (const ConstTensorView& view : {t.k_scale, t.v_scale}) {
    EXPECT_EQ(view.shape, (std::array<int64_t, 4>{3, 1, 2, 1}));
    for (int64_t b = 0; b < 3; ++b) {
      for (int64_t h = 0; h < 2; ++h) scales.insert(static_cast<float>(At(view, b, 0, h, 0)));
    }
  }
  EXPECT_EQ(scales.size(), 12u);
  EXPECT_GE(*scales.begin(), 0.5f);
  EXPECT_LE(*scales.rbegin(), 1.5f);
  EXPECT_EQ(Make("hq=1,sq=1,d=8,dtype=bf16").tensors().k_scale.data, nullptr);
}

TEST(InputsTest, Fp8HasScalesForBlocks) {
  const oracle::Inputs inputs =
      Make("b=2,hq=4,hkv=2,sq=65,skv=200,d=16,dtype=fp8_e4m3,lens=packed,scaleblock=64");
  const AttentionTensors& t = inputs.tensors();
  EXPECT_EQ(t.q.dtype, DType::kFloat8E4M3);
  EXPECT_EQ(t.q_scale.shape, (std::array<int64_t, 4>{2, 2, 4, 1}));
  EXPECT_EQ(t.k_scale.shape, (std::array<int64_t, 4>{2, 4, 2, 1}));
  EXPECT_EQ(t.v_scale.shape, (std::array<int64_t, 4>{2, 4, 2, 1}));
  EXPECT_NE(At(t.k_scale, 0, 0, 0, 0), At(t.k_scale, 0, 1, 0, 0));
  const oracle::Inputs other = Make("hq=1,sq=5,d=16,dtype=fp8_e4m3,vdtype=fp8_e5m2");
  EXPECT_EQ(other.tensors().k.dtype, DType::kFloat8E4M3);
  EXPECT_EQ(other.tensors().v.dtype, DType::kFloat8E5M2);
  EXPECT_NE(other.tensors().v_scale.data, nullptr);
}

// Sequences of 5, 0 and 8 keys in pages of 4.
oracle::Inputs InPages(const std::string& line, oracle::Layout layout, uint64_t seed = 0) {
  oracle::InputOptions options;
  options.seed = seed;
  options.layout = layout;
  options.q_lens = {2, 1, 0};
  options.kv_lens = {5, 0, 8};
  return Make(line, options);
}

TEST(InputsTest, PagesAreShuffledAndWhatNoSequenceUsesIsNan) {
  const std::string line = "b=3,hq=2,hkv=1,sq=2,skv=9,d=8,dtype=fp16,page=4,lens=";
  for (const std::string& full : {line + "packed", line + "padded"}) {
    const AttentionProblem p = *AttentionProblem::Parse(full);
    for (oracle::Layout layout : {oracle::Layout::kBshd, oracle::Layout::kBhsd,
                                  oracle::Layout::kStrided, oracle::Layout::kOdd}) {
      const oracle::Inputs inputs = InPages(full, layout);
      const AttentionTensors& t = inputs.tensors();
      const PageTableView& table = t.page_table;
      EXPECT_EQ(t.k.shape, (std::array<int64_t, 4>{4 + oracle::kUnusedPages, 4, 1, 8}));
      EXPECT_EQ(table.rows, 3);
      EXPECT_EQ(table.columns, 4);
      EXPECT_EQ(t.cu_seqlens_kv.data, nullptr);
      EXPECT_EQ(t.kv_len.count, 3);
      std::set<int32_t> used;
      std::set<std::pair<int64_t, int64_t>> places;  // of keys
      for (int64_t i = 0; i < 3; ++i) {
        const int64_t length = inputs.kv_lens()[i];
        for (int64_t j = 0; j < table.row_stride; ++j) {
          const int32_t page = table.data[i * table.row_stride + j];
          if (4 * j < length) {
            EXPECT_TRUE(used.insert(page).second) << page;
          } else {
            EXPECT_TRUE(page < -1000000 || page > 1000000) << page;
          }
        }
        for (int64_t key = 0; key < length; ++key) {
          const KeyPlace place = PlaceOf(p, t, SequenceOf(p, t, i), key);
          EXPECT_TRUE(places.insert({place.batch, place.row}).second);
        }
      }
      EXPECT_EQ(used.size(), 4u);
      for (int64_t page = 0; page < t.k.shape[0]; ++page) {
        for (int64_t row = 0; row < 4; ++row) {
          EXPECT_EQ(std::isnan(At(t.v, page, row, 0, 7)), places.count({page, row}) == 0);
        }
      }
    }
  }
  const auto first_page = [&line](uint64_t seed) {
    return *InPages(line + "padded", oracle::Layout::kBshd, seed).tensors().page_table.data;
  };
  std::set<int32_t> first;
  for (uint64_t seed = 0; seed < 50; ++seed) first.insert(first_page(seed));
  EXPECT_EQ(first.size(), 7u);
  EXPECT_EQ(first_page(3), first_page(3));
}

TEST(ValuesTest, NamesParseBack) {
  for (oracle::Values values : oracle::kAllValues) {
    ASSERT_TRUE(oracle::ParseValues(Name(values)).ok()) << Name(values);
    EXPECT_EQ(*oracle::ParseValues(Name(values)), values);
  }
  EXPECT_EQ(oracle::ParseValues("ones").status().message(),
            "values: \"ones\" is not one of normal, uniform, outliers, large, zero_q, constant_v");
}

}  // namespace
}  // namespace attnlab::conformance
