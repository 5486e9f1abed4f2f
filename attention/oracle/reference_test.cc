#include "attention/oracle/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/oracle/inputs.h"
#include "attention/oracle/row.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::oracle {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

AttentionProblem Problem(const std::string& line) {
  absl::StatusOr<AttentionProblem> problem = AttentionProblem::Parse(line);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return problem.value_or(AttentionProblem());
}

// One head in fp32 with given values: q [sq][d], k [skv][d], v [skv][dv].
struct OneHead {
  OneHead(const std::string& line, std::vector<float> q_in, std::vector<float> k_in,
          std::vector<float> v_in)
      : p(Problem("hq=1,dtype=fp32," + line)), q(q_in), k(k_in), v(v_in) {
    t.q = BshdView(q.data(), p.dtype, Device::Cpu(), 1, p.sq, 1, p.d);
    t.k = BshdView(k.data(), p.dtype, Device::Cpu(), 1, p.skv, 1, p.d);
    t.v = BshdView(v.data(), p.dtype, Device::Cpu(), 1, p.skv, 1, p.dv);
  }

  Result Run() const {
    absl::StatusOr<Result> result = Exact(p, t, AllRows(p, t));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(Result());
  }

  AttentionProblem p;
  std::vector<float> q, k, v;
  AttentionTensors t;
};

Inputs Random(const AttentionProblem& p, Layout layout = Layout::kBshd,
              Values values = Values::kNormal) {
  InputOptions options;
  options.seed = 5;
  options.layout = layout;
  options.values = values;
  absl::StatusOr<Inputs> inputs = Inputs::Make(p, Device::Cpu(), options);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return *std::move(inputs);
}

Result RunAll(const AttentionProblem& p, const AttentionTensors& t) {
  absl::StatusOr<Result> result = Exact(p, t, AllRows(p, t));
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(Result());
}

double At(const ConstTensorView& t, int64_t b, int64_t s, int64_t h, int64_t i) {
  return LoadElement(t.data, t.dtype, t.Offset(b, s, h, i));
}

TEST(ExactTest, TwoKeysByHand) {
  // Weights 1 and 3.
  const OneHead a("sq=1,skv=2,d=1,dv=2,scale=1", {1}, {0, std::log(3.0f)}, {8, 0, 4, -1});
  const Result r = a.Run();
  EXPECT_NEAR(r.O(0, 0), 5, 1e-6);  // log 3 is rounded to fp32
  EXPECT_NEAR(r.O(0, 1), -0.75, 1e-6);
  EXPECT_NEAR(r.lse[0], std::log(4.0), 1e-7);
}

TEST(ExactTest, KeysAndValuesOfFp8CountTimesTheirScales) {
  const AttentionProblem p =
      Problem("b=2,hq=4,hkv=2,sq=5,skv=9,d=24,dv=16,dtype=fp16,kvdtype=fp8_e4m3,lens=packed");
  const Inputs inputs = Random(p);
  const AttentionTensors& t = inputs.host_tensors();
  const Result r = RunAll(p, t);
  // The same in fp32.
  const AttentionProblem plain =
      Problem("b=2,hq=4,hkv=2,sq=5,skv=9,d=24,dv=16,dtype=fp32,lens=packed");
  const Inputs others = Random(plain);
  const AttentionTensors& u = others.host_tensors();
  ASSERT_EQ(t.k.shape, u.k.shape);  // the lengths are those of the seed
  const auto copy = [](const ConstTensorView& from, const ConstTensorView& to, auto scale) {
    for (int64_t s = 0; s < from.shape[1]; ++s) {
      for (int64_t h = 0; h < from.shape[2]; ++h) {
        for (int64_t i = 0; i < from.shape[3]; ++i) {
          StoreElement(const_cast<void*>(to.data), to.dtype, to.Offset(0, s, h, i),
                       static_cast<float>(At(from, 0, s, h, i)) * scale(s, h));
        }
      }
    }
  };
  const auto scaled = [&](const ConstTensorView& scales) {
    return [&t, &scales](int64_t token, int64_t head) {
      const int64_t sequence = token < t.cu_seqlens_kv.data[1] ? 0 : 1;
      return static_cast<float>(At(scales, sequence, 0, head, 0));
    };
  };
  copy(t.q, u.q, [](int64_t, int64_t) { return 1.0f; });
  copy(t.k, u.k, scaled(t.k_scale));
  copy(t.v, u.v, scaled(t.v_scale));
  const Result expected = RunAll(plain, u);
  ASSERT_EQ(r.o.size(), expected.o.size());
  ASSERT_FALSE(r.o.empty());
  for (size_t i = 0; i < r.o.size(); ++i) EXPECT_NEAR(r.o[i], expected.o[i], 1e-5);
  for (size_t i = 0; i < r.lse.size(); ++i) {
    if (std::isfinite(expected.lse[i])) {
      EXPECT_NEAR(r.lse[i], expected.lse[i], 1e-5);
    }
  }
  const absl::StatusOr<Result> s = Straightforward(p, t, AllRows(p, t));
  ASSERT_TRUE(s.ok()) << s.status();
  for (size_t i = 0; i < r.o.size(); ++i) EXPECT_NEAR(s->o[i], r.o[i], 0.01);
}

TEST(ExactTest, ScaleIsAFactorAndDefaultsToOneOverRootD) {
  const std::vector<float> q = {1, 2, 3, 4}, k = {1, 1, 1, 1}, v = {7};
  EXPECT_DOUBLE_EQ(OneHead("sq=1,d=4,dv=1", q, k, v).Run().lse[0], 5);
  EXPECT_DOUBLE_EQ(OneHead("sq=1,d=4,dv=1,scale=2", q, k, v).Run().lse[0], 20);
  EXPECT_DOUBLE_EQ(OneHead("sq=1,d=4,dv=1,scale=0", q, k, v).Run().lse[0], 0);
}

TEST(ExactTest, OneKeyGivesItsValue) {
  const OneHead a("sq=2,skv=1,d=3,dv=2,scale=1", {1, 2, 3, -4, 5, 6}, {1, 0, -1}, {0.1f, -9});
  const Result r = a.Run();
  EXPECT_EQ(r.o, (std::vector<double>{0.1f, -9, 0.1f, -9}));
  EXPECT_EQ(r.lse, (std::vector<double>{-2, -10}));
  EXPECT_EQ(r.spread, (std::vector<double>{9, 9}));
}

TEST(ExactTest, EqualScoresGiveTheMeanAndLogN) {
  const int n = 37;
  std::vector<float> v;
  double mean = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    v.push_back(static_cast<float>(i * i) / 16);
    mean += double{v.back()} / n;
    squares += v.back() * v.back();
  }
  const OneHead a("sq=1,skv=37,d=1,scale=1", {3}, std::vector<float>(n, 0.5f), v);
  const Result r = a.Run();
  EXPECT_NEAR(r.o[0], mean, 1e-12);
  EXPECT_NEAR(r.lse[0], std::log(37.0) + 1.5, 1e-14);
  EXPECT_NEAR(r.spread[0], std::sqrt(squares) / n, 1e-12);
}

TEST(ExactTest, LargeScoresDoNotOverflow) {
  const OneHead a("sq=1,skv=2,d=1,scale=1", {1e4f}, {1e4f, -1e4f}, {2, 3});
  const Result r = a.Run();
  EXPECT_EQ(r.o[0], 2);
  EXPECT_EQ(r.lse[0], 1e8);
}

TEST(ExactTest, AScoreWhoseTermsCancelIsAsLargeAsTheyAre) {
  const std::vector<float> q = {3e3f, 4e3f}, k = {4, -3};
  const Result one = OneHead("sq=1,skv=1,d=2,dv=1,scale=0.5", q, k, {1}).Run();
  EXPECT_EQ(one.lse[0], 0);
  EXPECT_NEAR(one.score[0], 6e3 * std::sqrt(2.0), 1e-9);
  // A key that the row does not see has no influence.
  const OneHead hidden("sq=2,skv=2,d=2,dv=1,scale=0.5,mask=causal", {3, 4, 3e3f, 4e3f},
                       {4, -3, 4e3f, -3e3f}, {1, 1});
  EXPECT_NEAR(hidden.Run().score[0], 6 * std::sqrt(2.0), 1e-9);
}

TEST(ExactTest, TermsThatCancelInALateKeyCountIfAllKeysDo) {
  const std::vector<double> q = {3, 4, 0, 0, 0, 0, 0, 0}, v(9, 1);
  std::vector<double> k(9 * q.size()), scratch(9);
  k[8 * q.size()] = 4, k[8 * q.size() + 1] = -3;
  RowInput<double> in;
  in.q = q.data(), in.k = k.data(), in.v = v.data();
  in.keys = 9, in.d = 2, in.dv = 1;
  double o = 0, lse = 0, spread = 0;
  for (const bool all_keys : {false, true}) {
    RowSizes sizes;
    sizes.spread = &spread, sizes.all_keys = all_keys;
    ExactRow(in, scratch.data(), &o, &lse, &sizes);
    EXPECT_NEAR(sizes.score, all_keys ? 12 * std::sqrt(2.0) : 0, 1e-12);
  }
}

TEST(ExactTest, SoftcapBoundsScoresAndVanishesWhenLarge) {
  // Both scores are far beyond the cap: +2 and -2.
  const OneHead capped("sq=1,skv=2,d=1,scale=1,softcap=2", {1}, {1e4f, -1e4f}, {1, 0});
  EXPECT_NEAR(capped.Run().o[0], 1 / (1 + std::exp(-4.0)), 1e-14);
  EXPECT_NEAR(capped.Run().score[0], 2, 1e-12);  // the cap removes an error of 1e4
  EXPECT_NEAR(capped.Run().lse[0], std::log(std::exp(2.0) + std::exp(-2.0)), 1e-14);
  // The formula is softcap * tanh(scale * qk / softcap).
  const OneHead middle("sq=1,skv=1,d=1,scale=0.5,softcap=3", {4}, {2}, {1});
  EXPECT_NEAR(middle.Run().lse[0], 3 * std::tanh(4.0 / 3), 1e-14);
  const OneHead loose("sq=1,skv=1,d=1,scale=1,softcap=1e9", {1}, {2}, {1});
  EXPECT_NEAR(loose.Run().lse[0], 2, 1e-14);
}

TEST(ExactTest, RowsWithoutAKeyAreZeroAndMinusInfinity) {
  const OneHead a("sq=3,skv=1,d=1,mask=causal", {1, 1, 1}, {1}, {5});
  const Result r = a.Run();
  EXPECT_EQ(r.o, (std::vector<double>{0, 0, 5}));
  EXPECT_EQ(r.lse, (std::vector<double>{-kInfinity, -kInfinity, 1}));
  EXPECT_EQ(r.spread, (std::vector<double>{0, 0, 5}));
  EXPECT_EQ(OneHead("sq=1,skv=0,d=1", {1}, {}, {}).Run().lse[0], -kInfinity);
}

TEST(ExactTest, MasksLetThroughWhatTheirDefinitionSays) {
  for (const char* mask : {"none", "causal", "window:0:0", "window:3:0", "window:2:1", "window:0:4",
                           "window:1000:1000"}) {
    for (const auto& [sq, skv] : {std::pair{9, 9}, {3, 11}, {11, 3}, {1, 8}, {8, 1}}) {
      AttentionProblem p = Problem(std::string("hq=1,d=4,dtype=fp32,sq=") + std::to_string(sq) +
                                   ",skv=" + std::to_string(skv) + ",mask=" + mask);
      const Inputs inputs = Random(p, Layout::kBshd, Values::kZeroQ);
      const Result r = RunAll(p, inputs.host_tensors());
      for (int i = 0; i < sq; ++i) {
        int keys = 0;
        double mean = 0;
        for (int j = 0; j < skv; ++j) {
          const int ahead = j - (i + skv - sq);  // of the query's own key position
          const bool seen = p.mask.kind == Mask::Kind::kNone ||
                            (p.mask.kind == Mask::Kind::kCausal && ahead <= 0) ||
                            (p.mask.kind == Mask::Kind::kSlidingWindow && -ahead <= p.mask.left &&
                             ahead <= p.mask.right);
          if (!seen) continue;
          ++keys;
          mean += At(inputs.host_tensors().v, 0, j, 0, 2);
        }
        if (keys > 0) mean /= keys;
        EXPECT_NEAR(r.O(i, 2), mean, 1e-12) << p.ToString() << " row " << i;
        if (keys == 0) {
          EXPECT_EQ(r.lse[i], -kInfinity) << p.ToString() << " row " << i;
        } else {
          EXPECT_NEAR(r.lse[i], std::log(keys), 1e-12) << p.ToString() << " row " << i;
        }
      }
    }
  }
}

// Computes the definition again, in long double, one element at a time.
void ExpectMatchesDefinition(const AttentionProblem& p, const AttentionTensors& t) {
  const std::vector<Row> rows = AllRows(p, t);
  const Result r = RunAll(p, t);
  for (size_t n = 0; n < rows.size(); ++n) {
    const Sequence s = SequenceOf(p, t, rows[n].sequence);
    const int64_t head = rows[n].head / (p.hq / p.hkv);
    std::vector<long double> weight(s.kv_len, 0);
    long double sum = 0;
    for (int64_t j = 0; j < s.kv_len; ++j) {
      if (p.mask.kind == Mask::Kind::kCausal && j > rows[n].row + s.kv_len - s.q_len) continue;
      long double score = 0;
      for (int64_t i = 0; i < p.d; ++i) {
        score +=
            static_cast<long double>(At(t.q, s.q_batch, s.q_begin + rows[n].row, rows[n].head, i)) *
            At(t.k, s.kv_batch, s.kv_begin + j, head, i);
      }
      score *= p.Scale();
      if (p.softcap != 0) score = p.softcap * std::tanh(score / p.softcap);
      weight[j] = std::exp(score);
      sum += weight[j];
    }
    if (sum == 0) continue;
    for (int64_t c = 0; c < p.dv; ++c) {
      long double o = 0;
      for (int64_t j = 0; j < s.kv_len; ++j) {
        if (weight[j] != 0) o += weight[j] * At(t.v, s.kv_batch, s.kv_begin + j, head, c) / sum;
      }
      ASSERT_NEAR(r.O(n, c), static_cast<double>(o), 1e-12) << p.ToString() << " row " << n;
    }
    ASSERT_NEAR(r.lse[n], static_cast<double>(std::log(sum)), 1e-12) << p.ToString();
  }
}

TEST(ExactTest, MatchesTheDefinitionForEveryDtypeLayoutAndKindOfLengths) {
  for (const char* line :
       {"b=2,hq=6,hkv=2,sq=7,skv=13,d=9,dv=5,dtype=fp32,mask=causal",
        "b=3,hq=2,hkv=1,sq=8,skv=19,d=512,dv=3,dtype=bf16,lens=packed",
        "b=5,hq=3,hkv=3,sq=9,skv=6,d=31,dv=512,dtype=fp16,mask=causal,lens=padded,softcap=2",
        "b=2,hq=2,hkv=2,sq=11,skv=11,d=8,dtype=bf16,mask=causal,lens=padded"}) {
    for (Layout layout : kAllLayouts) {
      const AttentionProblem p = Problem(line);
      if (!CheckLayout(layout, p).ok()) continue;
      // Everything beyond the lengths is NaN: finite results show that it is not read.
      const Inputs inputs = Random(p, layout);
      ExpectMatchesDefinition(p, inputs.host_tensors());
    }
  }
}

TEST(ExactTest, GroupsAreRepeatedHeads) {
  const AttentionProblem grouped = Problem("b=2,hq=6,hkv=2,sq=5,skv=9,d=8,dtype=bf16");
  const Inputs inputs = Random(grouped);
  AttentionTensors t = inputs.host_tensors();
  const Result expected = RunAll(grouped, t);

  const AttentionProblem repeated = Problem("b=2,hq=6,hkv=6,sq=5,skv=9,d=8,dtype=bf16");
  std::vector<BFloat16> k(2 * 9 * 6 * 8), v(2 * 9 * 6 * 8);
  const auto repeat = [](const ConstTensorView& from, std::vector<BFloat16>& to) {
    size_t n = 0;
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t s = 0; s < 9; ++s) {
        for (int64_t h = 0; h < 6; ++h) {
          for (int64_t i = 0; i < 8; ++i) to[n++] = BFloat16(At(from, b, s, h / 3, i));
        }
      }
    }
  };
  repeat(t.k, k);
  repeat(t.v, v);
  const void *k_data = k.data(), *v_data = v.data();
  t.k = BshdView(k_data, DType::kBFloat16, Device::Cpu(), 2, 9, 6, 8);
  t.v = BshdView(v_data, DType::kBFloat16, Device::Cpu(), 2, 9, 6, 8);
  EXPECT_EQ(RunAll(repeated, t).o, expected.o);
  EXPECT_EQ(RunAll(repeated, t).lse, expected.lse);
}

// The tokens [begin, begin + length) of a batch entry, as a separate tensor.
ConstTensorView Part(ConstTensorView t, int64_t batch, int64_t begin, int64_t length) {
  t.data = static_cast<const char*>(t.data) + t.Offset(batch, begin, 0, 0) * SizeOf(t.dtype);
  t.shape[0] = 1;
  t.shape[1] = length;
  return t;
}

TEST(ExactTest, SequencesOfABatchAreEachAsAlone) {
  for (const char* lens : {"packed", "padded", "fixed"}) {
    const AttentionProblem p =
        Problem(std::string("b=9,hq=4,hkv=2,sq=12,skv=17,d=8,dtype=fp32,mask=causal,lens=") + lens);
    const Inputs inputs = Random(p);
    const AttentionTensors& t = inputs.host_tensors();
    const Result all = RunAll(p, t);
    size_t at = 0;
    int empty = 0;
    for (int64_t i = 0; i < p.b; ++i) {
      const Sequence s = SequenceOf(p, t, i);
      AttentionProblem alone = p;
      alone.b = 1;
      alone.sq = s.q_len;
      alone.skv = s.kv_len;
      alone.lens = Lengths::kFixed;
      AttentionTensors part;
      part.q = Part(t.q, s.q_batch, s.q_begin, s.q_len);
      part.k = Part(t.k, s.kv_batch, s.kv_begin, s.kv_len);
      part.v = Part(t.v, s.kv_batch, s.kv_begin, s.kv_len);
      const Result one = RunAll(alone, part);
      ASSERT_LE(at + one.o.size(), all.o.size());
      EXPECT_TRUE(std::equal(one.o.begin(), one.o.end(), all.o.begin() + at)) << lens << i;
      at += one.o.size();
      empty += s.q_len == 0 || s.kv_len == 0;
    }
    EXPECT_EQ(at, all.o.size());
    EXPECT_EQ(empty > 0, p.lens != Lengths::kFixed) << "the seed should give an empty sequence";
  }
}

TEST(ExactTest, SelectedRowsAreThoseOfTheWhole) {
  const AttentionProblem p =
      Problem("b=3,hq=4,hkv=2,sq=30,skv=40,d=16,dtype=fp16,mask=window:7:2,lens=padded");
  const Inputs inputs = Random(p);
  const AttentionTensors& t = inputs.host_tensors();
  const std::vector<Row> rows = AllRows(p, t);
  const Result all = RunAll(p, t);
  std::vector<size_t> picked;
  for (size_t i = 0; i < rows.size(); i += 7) picked.push_back((i * 31) % rows.size());
  std::vector<Row> sample;
  for (size_t i : picked) sample.push_back(rows[i]);
  absl::StatusOr<Result> some = Exact(p, t, sample, /*threads=*/1);
  ASSERT_TRUE(some.ok()) << some.status();
  for (size_t i = 0; i < picked.size(); ++i) {
    EXPECT_EQ(some->lse[i], all.lse[picked[i]]);
    EXPECT_EQ(some->spread[i], all.spread[picked[i]]);
    EXPECT_EQ(some->score[i], all.score[picked[i]]);
    for (int64_t c = 0; c < p.dv; ++c) EXPECT_EQ(some->O(i, c), all.O(picked[i], c));
  }
}

TEST(StraightforwardTest, IsRoundedToTheDtypeAndCloseToExact) {
  for (const char* dtype : {"fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e4m3,vdtype=fp8_e5m2"}) {
    const AttentionProblem p = Problem(
        std::string("b=2,hq=4,hkv=2,sq=50,skv=70,d=64,mask=causal,softcap=5,dtype=") + dtype);
    const Inputs inputs = Random(p);
    const AttentionTensors& t = inputs.host_tensors();
    const std::vector<Row> rows = AllRows(p, t);
    const Result exact = RunAll(p, t);
    absl::StatusOr<Result> plain = Straightforward(p, t, rows);
    ASSERT_TRUE(plain.ok()) << plain.status();
    double error = 0, lse_error = 0;
    for (size_t i = 0; i < exact.o.size(); ++i) {
      error = std::max(error, std::abs(exact.o[i] - plain->o[i]));
      float stored = 0;
      StoreElement(&stored, p.ODType(), 0, static_cast<float>(plain->o[i]));
      EXPECT_EQ(LoadElement(&stored, p.ODType(), 0), plain->o[i]) << dtype;
    }
    for (size_t i = 0; i < exact.lse.size(); ++i) {
      lse_error = std::max(lse_error, std::abs(exact.lse[i] - plain->lse[i]));
    }
    // O is up to about 3, so half a unit comes from rounding O, and as much from P.
    EXPECT_GT(error, Epsilon(p.dtype) / 4) << dtype;
    EXPECT_LT(error, Epsilon(p.dtype) * 4) << dtype;
    EXPECT_GT(lse_error, 1e-9) << dtype;
    EXPECT_LT(lse_error, 5e-6) << dtype;
  }
}

TEST(StraightforwardTest, Tf32FactorsHaveTenBits) {
  // TF32 drops the low bits of 1 + 2^-11, but keeps those of 1 + 2^-10.
  const float low = 1 + 0x1p-11f, high = 1 + 0x1p-10f;
  const OneHead a("sq=1,skv=1,d=1,scale=1", {high}, {low}, {low});
  absl::StatusOr<Result> r = Straightforward(a.p, a.t, AllRows(a.p, a.t), Factors::kTf32);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->o, std::vector<double>{1});
  EXPECT_EQ(r->lse, std::vector<double>{high});
  r = Straightforward(a.p, a.t, AllRows(a.p, a.t));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->o, std::vector<double>{low});
  EXPECT_GT(r->lse[0], high);
}

TEST(StraightforwardTest, RowsWithoutAKeyAreZeroAndMinusInfinity) {
  const OneHead a("sq=2,skv=1,d=1,mask=causal,scale=1", {1, 1}, {1}, {5});
  absl::StatusOr<Result> r = Straightforward(a.p, a.t, AllRows(a.p, a.t));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->o, (std::vector<double>{0, 5}));
  EXPECT_EQ(r->lse, (std::vector<double>{-kInfinity, 1}));
}

TEST(ReferenceTest, PagesChangeNoBit) {
  for (const std::string lens : {"fixed", "packed", "padded"}) {
    const std::string line =
        "b=5,hq=4,hkv=2,sq=6,skv=70,d=12,dv=9,dtype=fp16,kvdtype=fp8_e4m3,mask=window:40:3,lens=" +
        lens;
    const AttentionProblem plain = Problem(line);
    for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kOdd}) {
      const Inputs inputs = Random(plain, layout);
      const std::vector<Row> rows = AllRows(plain, inputs.tensors());
      for (const char* page : {"1", "4", "64", "128"}) {
        const AttentionProblem paged = Problem(line + ",page=" + page);
        const Inputs in_pages = Random(paged, layout);
        EXPECT_EQ(AllRows(paged, in_pages.tensors()), rows);
        for (const auto compute :
             {+[](const AttentionProblem&p, const AttentionTensors&t, const std::vector<Row>&r) {
                return Exact(p, t, r);
              },
              +[](const AttentionProblem&p, const AttentionTensors&t, const std::vector<Row>&r) {
                return Straightforward(p, t, r);
              }}) {
          const absl::StatusOr<Result> a = compute(plain, inputs.tensors(), rows);
          const absl::StatusOr<Result> b = compute(paged, in_pages.tensors(), rows);
          ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
          EXPECT_EQ(a->o, b->o) << lens << " " << page;
          EXPECT_EQ(a->lse, b->lse) << lens << " " << page;
        }
      }
    }
  }
}

TEST(ReferenceTest, RejectsWhatItCannotDo) {
  OneHead a("sq=2,skv=1,d=1", {1, 1}, {1}, {5});
  const auto message = [&a](std::vector<Row> rows) {
    return std::string(Exact(a.p, a.t, rows).status().message());
  };
  EXPECT_EQ(message({{0, 0, 1}}), "");
  EXPECT_EQ(message({{0, 0, 0}, {0, 0, 2}}),
            "rows: entry 1 (sequence 0, head 0, row 2) does not exist");
  EXPECT_THAT(message({{1, 0, 0}}), HasSubstr("does not exist"));
  EXPECT_THAT(message({{0, -1, 0}}), HasSubstr("does not exist"));
  a.p.page = 16;
  EXPECT_THAT(message({}), HasSubstr("k: shape is [1, 1, 1, 1], must be [1, 16, 1, 1]"));
  a.p.page = 0;
  a.t.q.device = Device::Cuda(0);
  EXPECT_EQ(message({}), "q: on cuda:0, not on cpu");
  a.t.q.device = Device::Cpu();
  a.t.k.shape[1] = 2;
  EXPECT_THAT(message({}), HasSubstr("k: shape is [1, 2, 1, 1], must be [1, 1, 1, 1]"));
}

}  // namespace
}  // namespace attnlab::oracle
